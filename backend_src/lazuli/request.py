"""One request on its way through the engine, and how its vectors become its answer.

Takes rows of token ids, and later their vectors in any order from any thread; hands finished answers to a `Sender`.
Knows nothing of Triton, devices or batches.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lazuli.errors import LazuliError, NonFiniteError, ReplyError
from lazuli.options import RequestOptions

_log = logging.getLogger(__name__)
# Below this norm a vector is left as it is, as torch.nn.functional.normalize does.
_MIN_NORM = 1e-12


@dataclass(frozen=True, slots=True)
class EmbeddingPart:
    """Vectors of K rows of a request.

    Attributes:
        index: [K] int32, the rows.
        embedding: [K, D] float32.
        token_count: [K] int32, tokens of each row.
    """

    index: np.ndarray
    embedding: np.ndarray
    token_count: np.ndarray


@dataclass(frozen=True, slots=True)
class Sequence:
    """One row of a request.

    Attributes:
        request: The request that it belongs to.
        row: Its row there.
        input_ids: [L] int32.
    """

    request: "EmbedRequest"
    row: int
    input_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.input_ids)


class Sender(Protocol):
    """Where the answers of one request go."""

    def prepare(self, part: EmbeddingPart) -> None:
        """Get ready to send this very part, whose vectors will be filled in meanwhile."""

    def send(self, part: EmbeddingPart, *, final: bool) -> None:
        """Send vectors; nothing may follow a `final` part."""

    def send_error(self, error: LazuliError) -> None:
        """Send an error, which ends the request."""


class EmbedRequest(ABC):
    """A request of N rows; answered exactly once, or failed exactly once."""

    def __init__(
        self,
        rows: SequenceOf[np.ndarray],
        options: RequestOptions,
        normalize: bool,
        sender: Sender,
        dimension: int | None = None,
    ) -> None:
        """Wrap checked rows.

        Args:
            rows: N arrays of token ids, [L] int32 each.
            options: Of these, `dimensions` and `normalize` count here.
            normalize: The model's default for `options.normalize`.
            sender: Where the answer goes.
            dimension: D of the model; without it nothing can be prepared.
        """
        self.normalize = normalize if options.normalize is None else options.normalize
        self.sequences = tuple(Sequence(self, row, ids) for row, ids in enumerate(rows))
        self.num_tokens = sum(map(len, rows))
        self._dimensions = options.dimensions
        self._width = options.dimensions or dimension
        self._sender = sender
        self._remaining = len(rows)
        self._lock = threading.Lock()
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the last word was sent: rows that still wait need not be computed."""
        return self._done

    def prepare(self) -> None:  # noqa: B027 - not every kind has something to prepare
        """Do what an answer needs beside its vectors; for the time in which the device computes them."""

    def deliver(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Take the vectors of some rows; sends what can be sent.

        Args:
            rows: [K] int32, ascending.
            vectors: [K, D] float32; not kept after the call.
        """
        finite = np.isfinite(vectors)
        if np.count_nonzero(finite) != finite.size:  # sooner than all(), which is a function of Python
            row = int(rows[np.argmin(finite.all(axis=1))])
            self.fail(NonFiniteError(f"embedding[{row}]: the model computed NaN or Inf, so there is no usable vector"))
            return
        # A cut vector of a row that was scaled on the device only needs scaling again.
        vectors = self._cut(vectors)
        with self._lock:
            if self._done:
                return
            self._remaining -= len(rows)
            self._done = self._remaining == 0
            try:
                self._answer(rows, vectors)
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

    @abstractmethod
    def _answer(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Send or keep vectors. The lock is held, so that the final part cannot overtake another."""

    def _cut(self, vectors: np.ndarray) -> np.ndarray:
        if self._dimensions is None:
            return vectors
        cut = vectors[:, : self._dimensions]
        if not self.normalize:
            return np.ascontiguousarray(cut)
        norms: np.ndarray = np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), _MIN_NORM)
        scaled: np.ndarray = cut / norms
        return scaled


class UnaryRequest(EmbedRequest):
    """Answered in one piece once all rows are there."""

    _whole: EmbeddingPart | None = None

    def prepare(self) -> None:
        """Lay out the answer, and let the sender see it."""
        with self._lock:
            if self._whole is None and self._width is not None and not self._done:
                self._whole = self._lay_out(self._width)
                self._sender.prepare(self._whole)

    def _answer(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        if self._whole is None and self._done:  # all rows at once, and nothing was prepared
            self._whole = EmbeddingPart(rows, vectors, _count_tokens(self.sequences))
        else:
            self._whole = self._whole or self._lay_out(vectors.shape[1])
            self._whole.embedding[rows] = vectors
        if self._done:
            self._sender.send(self._whole, final=True)

    def _lay_out(self, width: int) -> EmbeddingPart:
        num_rows = len(self.sequences)
        embedding = np.empty((num_rows, width), dtype=np.float32)
        return EmbeddingPart(np.arange(num_rows, dtype=np.int32), embedding, _count_tokens(self.sequences))


class StreamRequest(EmbedRequest):
    """Answered in parts, each as soon as its batch is finished."""

    def _answer(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        token_count = _count_tokens([self.sequences[row] for row in rows])
        self._sender.send(EmbeddingPart(rows, vectors, token_count), final=self._done)


def _count_tokens(sequences: SequenceOf[Sequence]) -> np.ndarray:
    return np.fromiter(map(len, sequences), dtype=np.int32, count=len(sequences))
