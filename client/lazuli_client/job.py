"""One bulk job: embeds a file into a file, and goes on where an earlier run of the same job stopped.

Takes a source, a client and an output path, returns a summary. Does not know the terminal: progress goes to a
callback.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lazuli_client.client import LazuliClient
from lazuli_client.errors import FileError, LazuliError
from lazuli_client.files import STDIN, fingerprint, naming
from lazuli_client.options import EmbedOptions
from lazuli_client.output import RESULT_COLUMNS, check_kind, to_table, write
from lazuli_client.parts import Parts, stored_manifest
from lazuli_client.source import Source

# A part is closed at whichever comes first: this much work is done again after a kill.
_PART_ROWS = 16384
_PART_S = 5.0


@dataclass(frozen=True)
class Job:
    """What to embed, how, and where to.

    Attributes:
        source: The input.
        output: The output path; its suffix names the format.
        options: Options of all texts.
        batch_rows: Texts read at once.
        model: The client's model: vectors of two models must not meet in one output.
    """

    source: Source
    output: Path
    options: EmbedOptions
    batch_rows: int
    model: str = "embed"


@dataclass
class Summary:
    """What a job did.

    Attributes:
        texts: Rows of the output.
        tokens: Tokens of all rows.
        truncated: Rows that were cut.
        resumed: Rows that earlier runs had done.
        new_tokens: Tokens of this run.
        seconds: Duration of this run.
    """

    texts: int = 0
    tokens: int = 0
    truncated: int = 0
    resumed: int = 0
    new_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens of this run per second."""
        return self.new_tokens / self.seconds if self.seconds else 0.0


def check(job: Job, *, overwrite: bool) -> None:
    """Refuse early what cannot end well.

    Raises:
        FileError: If the output exists, or a column of the input has the name of a result.
    """
    kind = check_kind(job.output)
    clash = [name for name in (job.source.column, *job.source.keep) if name in RESULT_COLUMNS]
    if clash and kind != ".npy":
        raise FileError(f"{job.source.path}: column {clash[0]!r} has the name of a result column; rename it")
    if job.output.exists() and not overwrite:
        raise FileError(f"{job.output} exists; pass --overwrite to replace it")


def run(
    job: Job,
    client: LazuliClient,
    *,
    restart: bool = False,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Summary:
    """Embed what is left to do, then write the output.

    Args:
        job: The job.
        client: Where to embed.
        restart: Throw away what an earlier run did.
        overwrite: Replace the output if it exists.
        progress: Called with the number of rows done so far.

    Raises:
        FileError: If the files do not allow it.
        LazuliError: What the server said; what was done before is kept.
    """
    start = time.monotonic()
    kind = check_kind(job.output)
    with Parts(job.output, _manifest(job, kind, restart), restart=restart) as parts:
        if parts.was_published:
            # Only the tidying up was interrupted.
            summary = _summarize(parts, parts.num_rows, 0, start)
            parts.finish()
            return summary
        check(job, overwrite=overwrite)
        if job.source.path == STDIN and parts.num_rows:
            raise FileError("standard input cannot be read again, so its job cannot be resumed; pass --no-resume")
        resumed = parts.num_rows
        progress(resumed)
        new_tokens = _embed(job, client, parts, with_input=kind != ".npy", progress=progress)
        if not parts.num_rows:
            raise FileError(f"{job.source.path}: there is no text in it")
        with naming(parts.staged):
            write(parts.staged, kind, parts.tables(), parts.num_rows)
        summary = _summarize(parts, resumed, new_tokens, start)
        parts.publish()
    return summary


def _manifest(job: Job, kind: str, restart: bool) -> dict[str, Any]:
    before = None if restart else stored_manifest(job.output).get("input")
    return {
        "version": 1,
        "input": fingerprint(job.source.path, before),
        "column": job.source.column,
        "keep": list(job.source.keep),
        "kind": kind,
        "model": job.model,
        **asdict(job.options),
    }


def _embed(job: Job, client: LazuliClient, parts: Parts, *, with_input: bool, progress: Callable[[int], None]) -> int:
    """Embed the rows that `parts` lacks; returns their tokens."""
    under_way: deque[pa.RecordBatch] = deque()
    done: list[pa.Table] = []
    first_row, new_tokens, new_rows, since = parts.num_rows, 0, 0, time.monotonic()

    def texts() -> Iterator[list[str]]:
        for batch in job.source.batches(job.batch_rows, first_row):
            under_way.append(batch)
            yield batch.column(0).to_pylist()

    try:
        for result in client.embed_batches(texts(), job.options, first_row=first_row):
            done.append(to_table(under_way.popleft(), result, with_input=with_input))
            new_rows += len(result)
            new_tokens += int(result.token_counts.sum())
            progress(first_row + new_rows)
            if sum(map(len, done)) >= _PART_ROWS or time.monotonic() - since >= _PART_S:
                # Emptied before they are written: an interruption in between must not write them twice.
                tables, done, since = done, [], time.monotonic()
                parts.append(pa.concat_tables(tables).combine_chunks())
    except LazuliError as error:
        raise _placed(error, job.source) from error
    finally:
        if done:
            parts.append(pa.concat_tables(done).combine_chunks())
    return new_tokens


def _placed(error: LazuliError, source: Source) -> LazuliError:
    """The error with the line of the file, if it is about one row."""
    if error.row is None or isinstance(error, FileError):
        return error
    return type(error)(f"{source.place(error.row)}: {error.message}", code=error.code, row=error.row)


def _summarize(parts: Parts, resumed: int, new_tokens: int, start: float) -> Summary:
    summary = Summary(texts=parts.num_rows, resumed=resumed, new_tokens=new_tokens)
    for table in parts.tables():
        summary.tokens += pc.sum(table["token_count"]).as_py()
        summary.truncated += pc.sum(table["truncated"]).as_py()
    summary.seconds = time.monotonic() - start
    return summary
