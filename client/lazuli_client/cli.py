"""The commands `embed` and `search`.

Takes the command line, prints results to standard output, progress and errors to standard error. Exit codes:
0 done; 1 the server failed; 2 the input, the options or the files are wrong; 130 interrupted. What a job is,
is in `job.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

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
from lazuli_client.client import LazuliClient
from lazuli_client.errors import ConnectionFailedError, FileError, InvalidInputError, LazuliError, ModelNotFoundError
from lazuli_client.files import STDIN
from lazuli_client.options import EmbedOptions
from lazuli_client.search import Hit
from lazuli_client.search import search as search_file
from lazuli_client.settings import MAX_ROWS
from lazuli_client.source import Source

# About 30 s, because nobody watches a long job: see `RetryPolicy`.
CLI_RETRIES = 24


class ProtocolName(StrEnum):
    """The protocols."""

    GRPC = "grpc"
    HTTP = "http"


class Truncation(StrEnum):
    """What happens to a text that is too long."""

    NONE = "none"
    END = "end"
    START = "start"


class InputType(StrEnum):
    """What texts are."""

    QUERY = "query"
    DOCUMENT = "document"


Url = Annotated[str | None, typer.Option(help="host:port of the server; localhost:8001, or localhost:8000 for http.")]
Model = Annotated[str, typer.Option(help="Name of the model, as `lazuli model add` was told.")]
ProtocolOption = Annotated[ProtocolName, typer.Option(help="Protocol to the server.")]
Column = Annotated[str, typer.Option(help="Name of the text column in .jsonl, .csv and .parquet.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Limit of one request in seconds, retries included.")]
Retries = Annotated[int, typer.Option(help="Retries of a request while the server is overloaded or away.")]
BatchSize = Annotated[int, typer.Option(min=1, max=MAX_ROWS, help="Texts in one request at most.")]
InFlight = Annotated[int, typer.Option(min=1, help="Requests under way at once.")]


def open_client(
    url: str | None,
    protocol: ProtocolName,
    *,
    model: str,
    timeout_s: float,
    retries: int,
    batch_size: int,
    in_flight: int,
) -> LazuliClient:
    """The client of a command; tests put their own here."""
    return LazuliClient(
        url,
        protocol=protocol.value,
        model=model,
        timeout_s=timeout_s,
        retries=retries,
        rows_per_request=batch_size,
        max_in_flight=in_flight,
    )


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(embed)
    app.command()(search)


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
        Truncation, typer.Option(help="Where to cut a text that is too long; none makes it an error.")
    ] = Truncation.END,
    dimensions: Annotated[int | None, typer.Option(help="Keep this many leading dimensions.")] = None,
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="Scale vectors to unit length, or do not."),
    ] = None,
    batch_size: BatchSize = 64,
    in_flight: InFlight = 4,
    timeout: Timeout = 60.0,
    retries: Retries = CLI_RETRIES,
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
    with _one_line_errors("interrupted; the same command goes on where it stopped"):
        kind = None if input_type is None else input_type.value
        options = EmbedOptions(prompt_name, instruction, truncate.value, dimensions, normalize, kind)
        job = jobs.Job(Source(file, column, _others(keep, column)), out, options, batch_size, model)
        client = open_client(
            url, protocol, model=model, timeout_s=timeout, retries=retries, batch_size=batch_size, in_flight=in_flight
        )
        with client, _progress(job.source) as advance:
            _check_server(client)
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
    batch_size: BatchSize = 64,
    in_flight: InFlight = 4,
    timeout: Timeout = 60.0,
    retries: Retries = CLI_RETRIES,
) -> None:
    """Print the lines of FILE nearest to QUERY.

    FILE is embedded, with the model's prompt for documents if it has one, unless it holds vectors already: then only
    QUERY is.
    """
    with _one_line_errors("interrupted"):
        client = open_client(
            url, protocol, model=model, timeout_s=timeout, retries=retries, batch_size=batch_size, in_flight=in_flight
        )
        with client:
            _check_server(client)
            hits = search_file(client, file, query, k=k, column=column, prompt_name=prompt_name)
        if not hits:
            raise FileError(f"{file}: there is no text in it")
        Console().print(_hits_table(hits))


def _check_server(client: LazuliClient) -> None:
    """Tell at once that there is no server or no model; a job's retries wait for a server that restarts."""
    error = client.health().error
    if isinstance(error, (ConnectionFailedError, ModelNotFoundError)):
        raise error


@contextmanager
def _one_line_errors(interrupted: str) -> Iterator[None]:
    """Turn an exception that is no bug into one line and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        _fail(interrupted, 130)
    except (FileError, InvalidInputError, ValueError) as error:
        _fail(str(error), 2)
    except ConnectionFailedError as error:
        _fail(f"{error}; is the server running? `lazuli serve` starts one", 1)
    except LazuliError as error:
        _fail(f"{type(error).__name__}: {error}", 1)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)


def _fail(message: str, code: int) -> None:
    typer.echo("error: " + " ".join(message.split()), err=True)
    raise typer.Exit(code)


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
