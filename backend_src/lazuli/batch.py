"""The ragged batch: sequences of any lengths, packed one behind the other without padding.

Takes rows of token ids, returns the arrays of one forward pass, all on the host. Knows nothing of devices or requests.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

_FIRST = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Spans:
    """The P pieces that the sequences of a batch consist of, if vectors are made of those.

    Attributes:
        cu_spans: [P + 1] int32; piece i owns the tokens cu_spans[i] to cu_spans[i + 1].
        counts: [B] int64, pieces of each sequence.
    """

    cu_spans: np.ndarray
    counts: np.ndarray

    @classmethod
    def pack(cls, lengths: SequenceOf[np.ndarray]) -> "Spans":
        """Lay out the pieces of B sequences, each given by the lengths of its pieces."""
        flat = np.concatenate(lengths)
        cu_spans = np.zeros(len(flat) + 1, dtype=np.int32)
        np.cumsum(flat, out=cu_spans[1:])
        return cls(cu_spans, np.fromiter(map(len, lengths), dtype=np.int64, count=len(lengths)))


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """The input of one forward pass of B sequences and T tokens, by ascending length.

    Attributes:
        order: [B] int64; which row each sequence was. Equal lengths lie side by side, so the order is not the caller's.
        input_ids: [T] int32.
        position_ids: [T] int32, from 0 in each sequence.
        cu_seqlens: [B + 1] int32; sequence i owns the tokens cu_seqlens[i] to cu_seqlens[i + 1].
        max_seqlen: Tokens of the longest sequence.
        finish: [B] int32; what becomes of each vector: see `lazuli.outputs.finish`. [P] with spans.
        spans: What vectors are made of, if not of whole sequences.
    """

    order: np.ndarray
    input_ids: np.ndarray
    position_ids: np.ndarray
    cu_seqlens: np.ndarray
    max_seqlen: int
    finish: np.ndarray
    spans: Spans | None = None

    @classmethod
    def pack(cls, rows: SequenceOf[np.ndarray], finish: SequenceOf[int]) -> "RaggedBatch":
        """Pack B >= 1 rows of ids, [L] int32 each, L >= 1, with the finish code of each."""
        if len(rows) == 1:  # most queries come alone, and each operation here delays them
            length = len(rows[0])
            return cls(
                order=_FIRST,
                input_ids=np.array(rows[0], dtype=np.int32),
                position_ids=_positions(length),
                cu_seqlens=np.array([0, length], dtype=np.int32),
                max_seqlen=length,
                finish=np.array(finish, dtype=np.int32),
            )
        lengths = np.fromiter(map(len, rows), dtype=np.int32, count=len(rows))
        order = np.argsort(lengths, kind="stable")
        lengths = lengths[order]
        cu_seqlens = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(lengths, out=cu_seqlens[1:])
        return cls(
            order=order,
            input_ids=np.concatenate([rows[row] for row in order]),
            position_ids=np.arange(cu_seqlens[-1], dtype=np.int32) - np.repeat(cu_seqlens[:-1], lengths),
            cu_seqlens=cu_seqlens,
            max_seqlen=int(lengths[-1]),
            finish=np.array(finish, dtype=np.int32)[order],
        )

    def with_spans(self, lengths: SequenceOf[np.ndarray]) -> "RaggedBatch":
        """The same batch, with vectors of pieces.

        Args:
            lengths: For each row of ids, as `pack` got them, the lengths of its pieces; together all of its tokens.
        """
        spans = Spans.pack([lengths[row] for row in self.order])
        return replace(self, spans=spans, finish=np.repeat(self.finish, spans.counts))

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.input_ids)

    @property
    def num_sequences(self) -> int:
        """B."""
        return len(self.order)


def _positions(length: int) -> np.ndarray:
    """0, 1, 2, ... as [length] int32: a view of an array that is kept, not to be written to."""
    return _numbers(1 << (length - 1).bit_length())[:length]


@cache
def _numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)
