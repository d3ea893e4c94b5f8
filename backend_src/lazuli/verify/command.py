"""The command `lazuli verify`."""

import json
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lazuli.launch.options import Dtype
from lazuli.options import OUTPUTS
from lazuli.repository.names import Task
from lazuli.verify.candidate import Candidate, Protocol

if TYPE_CHECKING:
    from lazuli.verify.limits import Limits
    from lazuli.verify.verdict import Verdict

# In place of a reference.
NOTHING = "none"
Output = StrEnum("Output", {name.upper(): name for name in OUTPUTS})  # type: ignore[misc]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    model: Annotated[
        str, typer.Argument(help="A model of a repository, or a checkpoint; with --url, the name of a served model.")
    ],
    reference: Annotated[
        str,
        typer.Option(help="transformers, sentence-transformers, a file written by --save, or none: only write one."),
    ] = "transformers",
    output: Annotated[
        Output | None, typer.Option(help="What a model for vectors is asked for; by default what it has first.")
    ] = None,
    task: Annotated[
        Task | None, typer.Option(help="For a checkpoint or --url, where the checkpoint does not tell.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="host:port of a running server; else the engine runs here.")] = None,
    protocol: Annotated[Protocol, typer.Option(help="Of the server.")] = Protocol.GRPC,
    tls_ca: Annotated[
        Path | None, typer.Option(help="Encrypt, and trust certificates that this PEM file has signed.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM of a certificate to show the server.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM of its key.")] = None,
    tls_name: Annotated[
        str | None, typer.Option(help="Name in the server's certificate, where it is not the host of --url.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint of the reference; by default that of the model.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Of the engine: auto, cpu, cuda or cuda:N.")] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Arithmetic of the engine.")] = None,
    attention: Annotated[str | None, typer.Option(help="Attention backend of the engine, by name.")] = None,
    pooling: Annotated[str | None, typer.Option(help="Pooling of the engine: mean, cls or last.")] = None,
    texts: Annotated[
        Path | None, typer.Option(help="JSON file of queries and documents; else the built-in ones.")
    ] = None,
    candidates: Annotated[int, typer.Option(min=2, help="Documents that are scored for each query, for rerank.")] = 20,
    save: Annotated[Path | None, typer.Option(help="Write the model's answers here, as a reference for later.")] = None,
    min_cosine: Annotated[
        float | None,
        typer.Option(help="Least cosine with the reference (default 0.999; of int8 and uint8 0.99)."),
    ] = None,
    min_overlap: Annotated[
        float | None,
        typer.Option(
            help="Least share of the best ten documents in common (default 0.95; int8, uint8 0.9; binary 0.6)."
        ),
    ] = None,
    max_ndcg_drop: Annotated[
        float | None,
        typer.Option(
            help="By how much NDCG@10 may be below the reference's (default 0.01; int8, uint8 0.02; binary 0.05)."
        ),
    ] = None,
    max_score_difference: Annotated[
        float | None,
        typer.Option(
            help="Rerank: largest difference of a score, in standard deviations of the reference's (default 0.1)."
        ),
    ] = None,
    max_probability_difference: Annotated[
        float | None, typer.Option(help="Classify: largest difference of a probability (default 0.02).")
    ] = None,
    min_equal_labels: Annotated[
        float | None, typer.Option(help="Classify: least share of texts with the same label (default 0.99).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare what a model answers with a reference; exits with 1 if a limit is missed."""
    from lazuli.errors import LazuliError
    from lazuli.launch.errors import LaunchError
    from lazuli.repository.errors import RepositoryError
    from lazuli.verify.limits import Limits
    from lazuli_client.command_line import in_options, one_line_errors, tls_of
    from lazuli_client.errors import LazuliError as ClientError

    with one_line_errors("interrupted"):
        tls = tls_of(tls_ca, tls_cert, tls_key, tls_name)
    try:
        candidate = Candidate(model, url, protocol, checkpoint, task, device, dtype, attention, pooling, tls)
        limits = Limits(
            min_cosine, min_overlap, max_ndcg_drop, max_score_difference, max_probability_difference, min_equal_labels
        )
        verdict = run(candidate, reference, limits, texts, save, output, candidates)
        if verdict is None:
            typer.echo(f"{save}: written")
            raise typer.Exit(0)
    except (LazuliError, ClientError, LaunchError, RepositoryError) as error:
        typer.echo(f"error: {in_options(str(error))}", err=True)
        raise typer.Exit(2) from None
    typer.echo(json.dumps(verdict.as_json()) if as_json else verdict.table())
    raise typer.Exit(0 if verdict.passed else 1)


def run(
    candidate: Candidate,
    reference: str,
    limits: "Limits",
    texts: Path | None = None,
    save: Path | None = None,
    output: str | None = None,
    candidates: int = 20,
) -> "Verdict | None":
    """Ask both about the sample and compare; None without a reference.

    Raises:
        LazuliError: If one of them cannot answer.
    """
    from lazuli.errors import ConfigError
    from lazuli.verify.judge import judge
    from lazuli.verify.model import ask
    from lazuli.verify.question import Question
    from lazuli.verify.reference import check_reference, reference_answers
    from lazuli.verify.reference import save as save_answers
    from lazuli.verify.sample import load_sample

    if reference == NOTHING and save is None:
        raise ConfigError("reference: none is only of use with --save")
    if reference != NOTHING:
        check_reference(reference)
    target = candidate.find()
    question = Question(
        load_sample(texts), target.task, target.choose_output(output), candidates, target.checkpoint.has_quantizer
    )
    limits.of(question.kind)  # says what is wrong before anything is computed
    with closing(target.open()) as model:
        answers = ask(model, question, target.checkpoint, target.calibration)
    if save is not None:
        save_answers(save, answers)
    if reference == NOTHING:
        return None
    expected = reference_answers(reference, target.reference, target.reader, question)
    return judge(answers, expected, question, limits)
