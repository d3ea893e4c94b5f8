"""The books of one `embed_iter` call: the requests in flight, and which of their rows are still missing.

Takes chunks of texts and the server's answers, returns requests to send and parts to hand out, each row
exactly once. Does no input or output and never sleeps, so it serves the synchronous and the asynchronous
client alike.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lazuli_client.embeddings import Outputs, Part, column, count_rows, matrix
from lazuli_client.errors import LazuliError, ServerError
from lazuli_client.request import EmbedRequest, Parameters, text_request
from lazuli_client.retry import RetryPolicy
from lazuli_client.settings import Settings
from lazuli_client.splitting import Chunk
from lazuli_client.token_outputs import read_multi, read_sparse


@dataclass(frozen=True)
class StreamAnswer:
    """One answer of a stream.

    Attributes:
        request_id: Which request it answers; empty if the server did not say.
        outputs: Outputs by name; empty where the answer is an error or only marks the end.
        is_final: Whether it is the last answer to its request.
        error: The error that it carries, in terms of the request's rows.
    """

    request_id: str
    outputs: Outputs
    is_final: bool
    error: LazuliError | None = None


@dataclass(frozen=True)
class StreamRequest:
    """A request to send on the stream, after a pause of `delay_s`."""

    request_id: str
    request: EmbedRequest
    delay_s: float = 0.0


@dataclass
class _Open:
    """A request in flight; `missing` marks its rows that have not been answered."""

    texts: list[str]
    rows: NDArray[np.int64]
    missing: NDArray[np.bool_]
    attempt: int


class Ledger:
    """Keeps the books of one stream."""

    def __init__(self, settings: Settings, parameters: Parameters) -> None:
        self._settings = settings
        self._model = settings.stream_model
        self._parameters = parameters
        self._max_in_flight = settings.max_in_flight
        self._retry: RetryPolicy = settings.retry
        self._open: dict[str, _Open] = {}
        self._resend: deque[StreamRequest] = deque()
        self._last_id = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight or to be sent again."""
        return not self._open

    @property
    def has_room(self) -> bool:
        """Whether another request may go out."""
        return len(self._open) < self._max_in_flight

    def admit(self, chunk: Chunk[str]) -> StreamRequest:
        """Enter a chunk as a new request."""
        return self._enter(chunk.items, np.arange(chunk.rows.start, chunk.rows.stop), 0, 0.0)

    def resend(self) -> StreamRequest | None:
        """The next request that is to be sent again, if any."""
        return self._resend.popleft() if self._resend else None

    def due(self, chunks: Iterator[Chunk[str]]) -> Iterator[StreamRequest]:
        """What is to be sent now: first again what failed, then new chunks while there is room."""
        while (again := self.resend()) is not None:
            yield again
        while self.has_room and (chunk := next(chunks, None)) is not None:
            yield self.admit(chunk)

    def take(self, answer: StreamAnswer) -> Part | None:
        """Enter an answer.

        Returns:
            The rows that it brings, or None if it brings none.

        Raises:
            LazuliError: If it is an error that is not to be retried; rows are those of the whole input.
            ServerError: If it brings a row twice, ends a request too early, or answers a request that is not
                open.
        """
        entry = self._open.get(answer.request_id)
        if entry is None:
            _check_stray(answer)
            return None
        if answer.error is not None:
            self._fail(answer.request_id, answer.error.renumbered(entry.rows.tolist()))
            return None
        part = _part(entry, answer.outputs) if answer.outputs else None
        if answer.is_final:
            del self._open[answer.request_id]
            _check_complete(entry)
        return part

    def broken(self, error: LazuliError) -> None:
        """The stream broke: everything in flight is to be sent again on a new one.

        Raises:
            LazuliError: `error`, if it is not to be retried, or a request has used up its attempts.
        """
        self._resend.clear()
        for request_id in list(self._open):
            self._fail(request_id, error)
        # They go out one after the other: the pause before the first is enough for all.
        self._resend = deque(
            replace(item, delay_s=item.delay_s if place == 0 else 0.0) for place, item in enumerate(self._resend)
        )

    def _enter(self, texts: list[str], rows: NDArray[np.int64], attempt: int, delay_s: float) -> StreamRequest:
        self._last_id += 1
        request_id = str(self._last_id)
        self._open[request_id] = _Open(texts, rows, np.ones(len(texts), np.bool_), attempt)
        request = text_request(self._model, texts, self._parameters, rows.tolist())
        return StreamRequest(request_id, self._settings.mark(request), delay_s)

    def _fail(self, request_id: str, error: LazuliError) -> None:
        """Close a failed request, and open a new one for the rows that it left unanswered."""
        entry = self._open.pop(request_id)
        delay_s = self._retry.next_delay_s(error, entry.attempt, float("inf"))
        if delay_s is None:
            raise _named(error, entry.rows.tolist())
        texts = [text for text, missing in zip(entry.texts, entry.missing, strict=True) if missing]
        if texts:
            self._resend.append(self._enter(texts, entry.rows[entry.missing], entry.attempt + 1, delay_s))


def _check_stray(answer: StreamAnswer) -> None:
    # After an error the server may still mark the end of the same request; that brings nothing.
    if answer.error is not None and not answer.request_id:
        raise answer.error
    if answer.outputs:
        raise ServerError(f"the server answered request {answer.request_id!r}, which is not open")


def _part(entry: _Open, outputs: Outputs) -> Part:
    num_rows = count_rows(outputs)
    embeddings = matrix(outputs, num_rows)
    index = column(outputs, "index", num_rows).astype(np.int64)
    counts = column(outputs, "token_count", num_rows).astype(np.int32)
    if len(index) and not (index.min() >= 0 and index.max() < len(entry.rows)):
        raise ServerError(f"index: the server answered rows {index.tolist()} for a request of {len(entry.rows)}")
    if len(np.unique(index)) != len(index) or not entry.missing[index].all():
        raise ServerError(f"index: the server answered a row twice, rows {entry.rows[index].tolist()}")
    entry.missing[index] = False
    sparse, multi = read_sparse(outputs, num_rows), read_multi(outputs, num_rows)
    return Part(entry.rows[index], embeddings, counts, sparse, multi)


def _check_complete(entry: _Open) -> None:
    if entry.missing.any():
        rows = entry.rows[entry.missing].tolist()
        raise ServerError(f"the server ended a request without its rows {rows[:10]}", row=rows[0])


def _named(error: LazuliError, rows: Sequence[int]) -> LazuliError:
    """The error with the rows of the request that failed, unless it names its row already."""
    if error.row is not None:
        return error
    where = f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} to {rows[-1]}"
    return type(error)(f"{error.message} (request of {where})", code=error.code)
