"""The command `lazuli verify`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lazuli.launch.options import Dtype
from lazuli.verify.candidate import Candidate, Protocol

if TYPE_CHECKING:
    from lazuli.verify.verdict import Limits, Verdict


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    model: Annotated[
        str, typer.Argument(help="A model of a repository, or a checkpoint; with --url, the name of a served model.")
    ],
    reference: Annotated[
        str, typer.Option(help="transformers, sentence-transformers, or a file written by --save.")
    ] = "transformers",
    url: Annotated[str | None, typer.Option(help="host:port of a running server; else the engine runs here.")] = None,
    protocol: Annotated[Protocol, typer.Option(help="Of the server.")] = Protocol.GRPC,
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
    save: Annotated[Path | None, typer.Option(help="Write the model's vectors here, as a reference for later.")] = None,
    min_cosine: Annotated[float, typer.Option(help="Least cosine with the reference.")] = 0.999,
    min_overlap: Annotated[float, typer.Option(help="Least share of the best ten documents in common.")] = 0.95,
    max_ndcg_drop: Annotated[float, typer.Option(help="By how much NDCG@10 may be below the reference's.")] = 0.01,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare a model's vectors and rankings with a reference; exits with 1 if a limit is missed."""
    from lazuli.errors import LazuliError
    from lazuli.launch.errors import LaunchError
    from lazuli.repository.errors import RepositoryError
    from lazuli.verify.verdict import Limits

    candidate = Candidate(model, url, protocol, checkpoint, device, dtype, attention, pooling)
    try:
        limits = Limits(min_cosine, min_overlap, max_ndcg_drop)
        verdict = run(candidate, reference, limits, texts, save)
    except (LazuliError, LaunchError, RepositoryError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(json.dumps(verdict.as_json()) if as_json else verdict.table())
    raise typer.Exit(0 if verdict.passed else 1)


def run(candidate: Candidate, reference: str, limits: "Limits", texts: Path | None, save: Path | None) -> "Verdict":
    """Embed the sample with both and compare.

    Raises:
        LazuliError: If one of them cannot be had.
    """
    from lazuli.verify.embedders import embed_sample, reference_vectors, save_vectors
    from lazuli.verify.sample import load_sample
    from lazuli.verify.verdict import judge

    sample = load_sample(texts)
    opened = candidate.open()
    vectors = embed_sample(opened.embed, sample, opened.prompts)
    if save is not None:
        save_vectors(save, vectors)
    return judge(vectors, reference_vectors(reference, opened.checkpoint, sample), sample, limits)
