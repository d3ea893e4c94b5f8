"""The commands `rerank` and `classify`.

Takes the command line, prints results to standard output and errors to standard error, as `cli.py` does.
"""

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lazuli_client.client import LazuliClient
from lazuli_client.command_line import (
    CLI_RETRIES,
    BatchSize,
    Column,
    InFlight,
    InputType,
    Model,
    ProtocolName,
    ProtocolOption,
    Retries,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    TlsName,
    Url,
    one_line_errors,
    open_client,
    tls_of,
)
from lazuli_client.errors import ConnectionFailedError, FileError, InvalidInputError, LazuliError
from lazuli_client.ranking import Ranked
from lazuli_client.source import Source
from lazuli_client.task_options import ClassifyOptions, RerankOptions

_BATCH_ROWS = 1024


class Cut(StrEnum):
    """What happens to what is too long."""

    NONE = "none"
    END = "end"
    START = "start"


class Method(StrEnum):
    """What texts are compared by."""

    DENSE = "dense"
    SPARSE = "sparse"
    MULTI = "multi"
    HYBRID = "hybrid"


class Activation(StrEnum):
    """What becomes of scores."""

    NONE = "none"
    SIGMOID = "sigmoid"


AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")]
CutOption = Annotated[Cut, typer.Option(help="Where to cut what is too long; none makes it an error.")]


def rerank(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    file: Annotated[Path, typer.Argument(help=".txt (a text a line), .jsonl, .csv or .parquet; - is standard input.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of lines to print.")] = 5,
    model: Model = "rerank",
    url: Url = None,
    protocol: ProtocolOption = ProtocolName.GRPC,
    column: Column = "text",
    instruction: Annotated[
        str | None,
        typer.Option(help="What makes a text relevant, for models that read it; by default the model's own."),
    ] = None,
    truncate: CutOption = Cut.END,
    method: Annotated[
        Method | None,
        typer.Option(
            help="What texts are compared by, for models that read each by itself; by default all that the model has."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Of dense, sparse and multi in method hybrid, of those that the model has; by default equal ones.",
        ),
    ] = None,
    activation: Annotated[
        Activation | None,
        typer.Option(help="Scores between 0 and 1 (sigmoid), or as they are (none); by default as the model says."),
    ] = None,
    batch_size: BatchSize = 64,
    in_flight: InFlight = 4,
    timeout: Timeout = 60.0,
    retries: Retries = CLI_RETRIES,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_name: TlsName = None,
    as_json: AsJson = False,
) -> None:
    """Print the lines of FILE that answer QUERY best, by a model for the task rerank."""
    with one_line_errors("interrupted"):
        options = RerankOptions(
            instruction,
            truncate.value,
            activation=None if activation is None else activation.value,
            method=None if method is None else method.value,
            weights=None if weights is None else _read_weights(weights),
        )
        limits: dict[str, Any] = {"retries": retries, "batch_size": batch_size, "in_flight": in_flight}
        tls = tls_of(tls_ca, tls_cert, tls_key, tls_name)
        client = open_client(url, protocol, model=model, timeout_s=timeout, tls=tls, **limits)
        with client:
            _check_connection(client)
            hits = _best(client, query, Source(file, column), k, options)
        if not hits:
            raise FileError(f"{file}: there is no text in it")
        if as_json:
            for hit in hits:
                _print_json({"row": hit.index, "score": hit.score, "text": hit.document})
        else:
            Console().print(_table(hits))


def classify(
    file: Annotated[Path, typer.Argument(help=".txt (a text a line), .jsonl, .csv or .parquet; - is standard input.")],
    model: Model = "classify",
    url: Url = None,
    protocol: ProtocolOption = ProtocolName.GRPC,
    column: Column = "text",
    prompt_name: Annotated[str | None, typer.Option(help="Prompt of the model, put before each text.")] = None,
    instruction: Annotated[str | None, typer.Option(help="Free text for the model's instruction template.")] = None,
    input_type: Annotated[
        InputType | None, typer.Option(help="What the texts are: the model's prompt for those, if it has one.")
    ] = None,
    truncate: CutOption = Cut.NONE,
    batch_size: BatchSize = 64,
    in_flight: InFlight = 4,
    timeout: Timeout = 60.0,
    retries: Retries = CLI_RETRIES,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_name: TlsName = None,
    as_json: AsJson = False,
) -> None:
    """Print the label of each line of FILE, its probability and the line; with --json all probabilities."""
    with one_line_errors("interrupted"):
        options = ClassifyOptions(
            truncate.value, prompt_name, instruction, None if input_type is None else input_type.value
        )
        limits: dict[str, Any] = {"retries": retries, "batch_size": batch_size, "in_flight": in_flight}
        tls = tls_of(tls_ca, tls_cert, tls_key, tls_name)
        client = open_client(url, protocol, model=model, timeout_s=timeout, tls=tls, **limits)
        with client:
            _check_connection(client)
            for record in _labelled(client, Source(file, column), options):
                if as_json:
                    _print_json(record)
                else:
                    best = record["probabilities"][record["label"]]
                    typer.echo(f"{record['label']}\t{best:.3f}\t{' '.join(record['text'].split())}")


def _read_weights(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInputError(f"weights: must be numbers with commas between, got {text!r}") from None


def _check_connection(client: LazuliClient) -> None:
    """Tell at once that there is no server; the retries wait for one that restarts."""
    error = client.health().error  # by a text, which these models do not all take: any answer will do
    if isinstance(error, ConnectionFailedError):
        raise error


def _best(client: LazuliClient, query: str, source: Source, k: int, options: RerankOptions) -> list[Ranked]:
    """The best of all batches; of equal ones the earlier."""
    hits: list[Ranked] = []
    first_row = 0
    for texts in _texts(source):
        try:
            ranking = client.rerank(
                query,
                texts,
                top_k=k,
                return_documents=True,
                instruction=options.instruction,
                truncate=options.truncate,
                activation=options.activation,
                method=options.method,
                weights=options.weights,
            )
        except LazuliError as error:
            raise error.renumbered(range(first_row, first_row + len(texts))) from error
        hits += [Ranked(first_row + hit.index, hit.score, hit.document) for hit in ranking]
        hits = sorted(hits, key=lambda hit: (-hit.score, hit.index))[:k]
        first_row += len(texts)
    return hits


def _labelled(client: LazuliClient, source: Source, options: ClassifyOptions) -> Iterator[dict[str, Any]]:
    row = 0
    waiting: list[list[str]] = []  # batches are read ahead of their answers

    def batches() -> Iterator[list[str]]:
        for texts in _texts(source):
            waiting.append(texts)
            yield texts

    for labels in client.classify_batches(batches(), options):
        for label, values, text in zip(labels.labels, labels.probabilities, waiting.pop(0), strict=True):
            probabilities = dict(zip(labels.names, map(float, values), strict=True))
            yield {"row": row, "label": label, "probabilities": probabilities, "text": text}
            row += 1


def _texts(source: Source) -> Iterator[list[str]]:
    if str(source.path) != "-" and not source.path.exists():
        raise FileError(f"{source.path}: no such file")
    for batch in source.batches(_BATCH_ROWS):
        yield batch.column(0).to_pylist()


def _print_json(record: dict[str, Any]) -> None:
    typer.echo(json.dumps(record, ensure_ascii=False))


def _table(hits: list[Ranked]) -> Table:
    table = Table("score", "row", "text", box=None)
    for hit in hits:
        # Text, not str: brackets in somebody's text are not markup.
        text = Text(" ".join((hit.document or "").split()), no_wrap=True, overflow="ellipsis")
        table.add_row(f"{hit.score:.3f}", str(hit.index), text)
    return table
