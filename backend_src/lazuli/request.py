"""One request on its way through the engine, and how what is computed of its rows becomes its answer.

Takes rows of token ids, and later values of them in any order from any thread; hands finished answers to a `Sender`.
What an answer holds is the affair of an `AnswerForm`. Knows nothing of Triton, devices or batches.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazuli.errors import LazuliError, ReplyError, RequestCancelledError

if TYPE_CHECKING:
    from lazuli.tracing.request_trace import RequestTrace

_log = logging.getLogger(__name__)
VECTORS = "vectors"
QUERY, BULK = "query", "bulk"
WORKLOADS = (QUERY, BULK)


@dataclass(frozen=True, slots=True)
class Part:
    """What was computed of K rows of a request.

    Attributes:
        index: [K] int32, the rows.
        token_count: [K] int32, tokens of each row.
        outputs: Name of a Triton output to its values, [K, ...].
    """

    index: np.ndarray
    token_count: np.ndarray
    outputs: Mapping[str, np.ndarray]


class AnswerForm(Protocol):
    """What the answer to a request holds. May serve several requests."""

    @property
    def finish(self) -> int:
        """What becomes of each vector on the device: a code of `lazuli.outputs.finish`."""

    def lay_out(self, token_count: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs of N rows, to be filled.

        Args:
            token_count: [N] int32, tokens of each row.
        """

    def read(self, rows: np.ndarray, values: Any) -> dict[str, np.ndarray]:
        """Outputs out of what the device computed.

        Args:
            rows: [K] int32, ascending.
            values: [K, D] float32, or what another program computes; the outputs may look at their memory.

        Returns:
            Output name to [K, ...], the names and types of `lay_out`.

        Raises:
            LazuliError: If there is no answer for one of the rows; names it.
        """


@dataclass(frozen=True, slots=True)
class Sequence:
    """One row of a request.

    Attributes:
        request: The request that it belongs to.
        row: Its row there.
        input_ids: [L] int32.
        spans: [P] int32, the lengths of the pieces that it consists of, if vectors are made of those.
    """

    request: "Request"
    row: int
    input_ids: np.ndarray
    spans: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)


class Sender(Protocol):
    """Where the answers of one request go."""

    def prepare(self, part: Part) -> None:
        """Get ready to send this very part, whose values will be filled in meanwhile."""

    def send(self, part: Part, *, final: bool) -> None:
        """Send values; nothing may follow a `final` part."""

    def send_error(self, error: LazuliError) -> None:
        """Send an error, which ends the request."""

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more. Not called once the request has ended; may take a while."""


class Request(ABC):
    """A request of N rows; answered exactly once, or failed exactly once.

    Attributes:
        program: What computes its rows: `vectors`, or one of the programs of an engine. A batch has one program.
        workload: `query` if somebody waits for the answer, `bulk` if it is not urgent; None: its size tells.
        deadline_ms: So long after it was queued, what is left of it is not computed any more; None for no limit.
        trace: Notes the batches that it is in; None if nobody wants to know.
    """

    program = VECTORS
    workload: str | None = None
    deadline_ms: int | None = None
    trace: "RequestTrace | None" = None

    def __init__(self, rows: SequenceOf[np.ndarray], form: AnswerForm, sender: Sender) -> None:
        """Wrap checked rows.

        Args:
            rows: N arrays of token ids, [L] int32 each.
            form: What the answer holds.
            sender: Where it goes.
        """
        self.finish = form.finish
        self.sequences = tuple(Sequence(self, row, ids) for row, ids in enumerate(rows))
        self.num_tokens = sum(map(len, rows))
        self.form = form
        self._sender = sender
        self._remaining = len(rows)
        self._lock = threading.Lock()
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the last word was sent: rows that still wait need not be computed."""
        return self._done

    def prepare(self) -> None:  # noqa: B027 - not every kind has something to prepare
        """Do what an answer needs beside its values; for the time in which the device computes them."""

    def deliver(self, rows: np.ndarray, values: Any) -> None:
        """Take what was computed of some rows; sends what can be sent.

        Args:
            rows: [K] int32, ascending.
            values: [K, D] float32, or what another program computes; the caller must not change them any more.
        """
        try:
            outputs = self.form.read(rows, values)
        except LazuliError as error:
            self.fail(error)
            return
        with self._lock:
            if self._done:
                return
            self._remaining -= len(rows)
            self._done = self._remaining == 0
            try:
                self._answer(rows, outputs)
            except Exception as error:  # whatever it is, a request without an answer would hang for ever
                self._done = True
                _log.exception("an answer could not be sent")
                if not isinstance(error, LazuliError):
                    error = ReplyError(f"the answer could not be sent: {error}")
                self._sender.send_error(error)

    def fail(self, error: LazuliError) -> None:
        """End the request with an error, unless it has ended already."""
        with self._lock:
            if not self._done:
                self._done = True
                self._sender.send_error(error)

    def fail_if_cancelled(self) -> bool:
        """End the request if nobody waits for its answer; returns whether that was so. May take a while.

        What is on the device goes on, and its rows are dropped when they come.
        """
        with self._lock:  # the sender must not be asked once the last word was sent
            if self._done or not self._sender.is_cancelled():
                return False
            self._done = True
            self._sender.send_error(RequestCancelledError("cancelled: the caller gave the request up"))
            return True

    @abstractmethod
    def _answer(self, rows: np.ndarray, outputs: Mapping[str, np.ndarray]) -> None:
        """Send or keep outputs. The lock is held, so that the final part cannot overtake another."""


class UnaryRequest(Request):
    """Answered in one piece once all rows are there."""

    _whole: Part | None = None

    def prepare(self) -> None:
        """Lay out the answer, and let the sender see it."""
        with self._lock:
            if self._whole is None and not self._done:
                self._whole = self._lay_out()
                self._sender.prepare(self._whole)

    def _answer(self, rows: np.ndarray, outputs: Mapping[str, np.ndarray]) -> None:
        if self._whole is None and self._done:  # all rows at once, and nothing was prepared
            self._whole = Part(rows, count_tokens(self.sequences), outputs)
        else:
            self._whole = self._whole or self._lay_out()
            for name, values in outputs.items():
                self._whole.outputs[name][rows] = values
        if self._done:
            self._sender.send(self._whole, final=True)

    def _lay_out(self) -> Part:
        token_count = count_tokens(self.sequences)
        return Part(np.arange(len(token_count), dtype=np.int32), token_count, self.form.lay_out(token_count))


class StreamRequest(Request):
    """Answered in parts, each as soon as its batch is finished."""

    def _answer(self, rows: np.ndarray, outputs: Mapping[str, np.ndarray]) -> None:
        token_count = count_tokens([self.sequences[row] for row in rows])
        self._sender.send(Part(rows, token_count, outputs), final=self._done)


def count_tokens(sequences: SequenceOf[Sequence]) -> np.ndarray:
    """[K] int32, tokens of each."""
    return np.fromiter(map(len, sequences), dtype=np.int32, count=len(sequences))
