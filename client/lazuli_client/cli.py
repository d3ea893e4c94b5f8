"""The commands `embed` and `search`; `rerank` and `classify` are in `task_cli.py`.

Takes the command line, prints results to standard output, progress and errors to standard error. What a job is, is in
`job.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from lazuli_client import job as jobs
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
    check_server,
    one_line_errors,
    open_client,
    tls_of,
)
from lazuli_client.errors import FileError
from lazuli_client.files import STDIN
from lazuli_client.gateway import command as gateway_command
from lazuli_client.options import EmbedOptions
from lazuli_client.ranges import Ranges
from lazuli_client.search import Hit
from lazuli_client.search import search as search_file
from lazuli_client.source import Source
from lazuli_client.task_cli import classify, rerank


class Truncation(StrEnum):
    """What happens to a text that is too long."""

    NONE = "none"
    END = "end"
    START = "start"
    SPLIT = "split"


class Encoding(StrEnum):
    """Numbers of the vectors."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    UINT8 = "uint8"
    BINARY = "binary"
    UBINARY = "ubinary"


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(embed)
    app.command()(search)
    app.command()(rerank)
    app.command()(classify)
    gateway_command.register(app)


def embed(
    file: Annotated[Path, typer.Argument(help=".txt (a text a line), .jsonl, .csv or .parquet; - is standard input.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="What to write: .parquet, .npy or .jsonl.")],
    model: Model = "embed",
    url: Url = None,
    protocol: ProtocolOption = ProtocolName.GRPC,
    column: Column = "text",
    keep: Annotated[list[str] | None, typer.Option(help="Another column to carry along; may be repeated.")] = None,
    prompt_name: Annotated[str | None, typer.Option(help="Prompt of the model, put before each text.")] = None,
    instruction: Annotated[str | None, typer.Option(help="Free text for the model's instruction template.")] = None,
    input_type: Annotated[
        InputType | None, typer.Option(help="What the texts are: the model's prompt for those, if it has one.")
    ] = None,
    truncate: Annotated[
        Truncation,
        typer.Option(
            help="Where to cut a text that is too long; none makes it an error, split takes the mean of its chunks."
        ),
    ] = Truncation.END,
    overlap: Annotated[
        int | None, typer.Option(min=0, help="Tokens that chunks have in common; with --truncate split.")
    ] = None,
    dimensions: Annotated[int | None, typer.Option(help="Keep this many leading dimensions.")] = None,
    force_dimensions: Annotated[
        bool | None, typer.Option("--force-dimensions", help="Also of a model that was not trained for it.")
    ] = None,
    output: Annotated[
        Encoding | None, typer.Option(help="Numbers of the vectors; int8 and uint8 may need `lazuli calibrate` first.")
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="Scale vectors to unit length, or do not."),
    ] = None,
    batch_size: BatchSize = 64,
    in_flight: InFlight = 4,
    timeout: Timeout = 60.0,
    retries: Retries = CLI_RETRIES,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_name: TlsName = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on with an interrupted job, or start it over.")
    ] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
) -> None:
    """Embed the texts of FILE into OUT.

    Texts that are too long for the model are cut at the end unless --truncate says otherwise; the summary
    counts them.

    An interrupted job leaves OUT.parts beside OUT: the same command goes on where it stopped.
    """
    with one_line_errors("interrupted; the same command goes on where it stopped"):
        kind = None if input_type is None else input_type.value
        encoding = None if output is None else output.value
        options = EmbedOptions(
            prompt_name, instruction, truncate.value, dimensions, normalize, kind, overlap, encoding, force_dimensions
        )
        job = jobs.Job(Source(file, column, _others(keep, column)), out, options, batch_size, model)
        limits: dict[str, Any] = {"retries": retries, "batch_size": batch_size, "in_flight": in_flight}
        tls = tls_of(tls_ca, tls_cert, tls_key, tls_name)
        client = open_client(url, protocol, model=model, timeout_s=timeout, workload="bulk", tls=tls, **limits)
        with client, _progress(job.source) as advance:
            check_server(client)
            summary = jobs.run(job, client, restart=not resume, overwrite=overwrite, progress=advance)
        typer.echo(_summary_line(out, summary))


def search(
    file: Annotated[Path, typer.Argument(help="Texts to search, or the output of `embed`.")],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of lines to print.")] = 5,
    model: Model = "embed",
    url: Url = None,
    protocol: ProtocolOption = ProtocolName.GRPC,
    column: Column = "text",
    prompt_name: Annotated[
        str | None, typer.Option(help="Prompt for the query; by default the model's for queries, if it has one.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="File of `lazuli calibrate`, which decodes int8 and uint8 vectors of FILE."),
    ] = None,
    batch_size: BatchSize = 64,
    in_flight: InFlight = 4,
    timeout: Timeout = 60.0,
    retries: Retries = CLI_RETRIES,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_name: TlsName = None,
) -> None:
    """Print the lines of FILE nearest to QUERY.

    FILE is embedded, with the model's prompt for documents if it has one, unless it holds vectors already: then only
    QUERY is. Vectors of int8 are compared as they are without `--calibration`, which is right for models with a
    quantiser of their own and rough for others.
    """
    with one_line_errors("interrupted"):
        limits: dict[str, Any] = {"retries": retries, "batch_size": batch_size, "in_flight": in_flight}
        tls = tls_of(tls_ca, tls_cert, tls_key, tls_name)
        client = open_client(url, protocol, model=model, timeout_s=timeout, tls=tls, **limits)
        with client:
            check_server(client)
            ranges = Ranges.read(calibration) if calibration is not None else None
            hits = search_file(client, file, query, k=k, column=column, prompt_name=prompt_name, ranges=ranges)
        if not hits:
            raise FileError(f"{file}: there is no text in it")
        Console().print(_hits_table(hits))


def _others(keep: list[str] | None, column: str) -> list[str]:
    return [name for name in dict.fromkeys(keep or []) if name != column]


@contextmanager
def _progress(source: Source) -> Iterator[Callable[[int], None]]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("texts"),
        TimeRemainingColumn(),
    )
    if source.path != STDIN and not source.path.exists():
        raise FileError(f"{source.path}: no such file")
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(str(source.path.name), total=source.num_rows())
        yield lambda done: bar.update(task, completed=done)


def _summary_line(out: Path, summary: jobs.Summary) -> str:
    resumed = f" ({summary.resumed:,} of them by an earlier run)" if summary.resumed else ""
    return (
        f"{out}: {summary.texts:,} texts{resumed}, {summary.tokens:,} tokens, "
        f"{summary.truncated:,} truncated, {summary.seconds:.2f} s, {summary.tokens_per_s:,.0f} tokens/s"
    )


def _hits_table(hits: list[Hit]) -> Table:
    table = Table("score", "row", "text", box=None)
    for hit in hits:
        # Text, not str: brackets in somebody's text are not markup.
        text = Text(" ".join((hit.text or "").split()), no_wrap=True, overflow="ellipsis")
        table.add_row(f"{hit.score:.3f}", str(hit.row), text)
    return table
