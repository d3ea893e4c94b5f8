"""What was computed of the tokens of some sequences, on the host.

Takes packed arrays of a batch, returns what belongs to each sequence. Knows nothing of devices or requests.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SparseRows:
    """Ids with weights above zero, ascending in each row.

    Attributes:
        ids: Of all rows, one behind the other, int32.
        weights: Likewise, float32.
        starts: [K + 1] int64; row i owns those from starts[i] to starts[i + 1].
    """

    ids: np.ndarray
    weights: np.ndarray
    starts: np.ndarray

    @classmethod
    def from_tokens(cls, input_ids: np.ndarray, weights: np.ndarray, cu_seqlens: np.ndarray) -> "SparseRows":
        """Of the weights [T] of tokens: an id that comes several times counts once, with its largest weight.

        One that is not finite is kept, so that it can be refused.
        """
        rows = np.repeat(np.arange(len(cu_seqlens) - 1), np.diff(cu_seqlens))
        used = np.flatnonzero(~(weights <= 0))  # NaN too
        rows, ids, weights = rows[used], input_ids[used], weights[used]
        order = np.lexsort((-weights, ids, rows))
        rows, ids, weights = rows[order], ids[order], weights[order]
        first = np.ones(len(ids), dtype=np.bool_)
        first[1:] = (ids[1:] != ids[:-1]) | (rows[1:] != rows[:-1]) | ~np.isfinite(weights[1:])
        return cls._from_places(rows[first], ids[first], weights[first], len(cu_seqlens) - 1)

    @classmethod
    def from_places(cls, places: np.ndarray, weights: np.ndarray, num_rows: int) -> "SparseRows":
        """Of a matrix's entries that are not zero: places [M, 2] of row and id, in order, and weights [M]."""
        return cls._from_places(places[:, 0], places[:, 1], weights, num_rows)

    @classmethod
    def _from_places(cls, rows: np.ndarray, ids: np.ndarray, weights: np.ndarray, num_rows: int) -> "SparseRows":
        starts = np.searchsorted(rows, np.arange(num_rows + 1))
        return cls(ids.astype(np.int32), weights.astype(np.float32), starts)

    def row(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and weights of one row."""
        part = slice(self.starts[number], self.starts[number + 1])
        return self.ids[part], self.weights[part]


@dataclass(frozen=True)
class MultiRows:
    """Vectors of tokens.

    Attributes:
        vectors: [T, D] float32, of all rows one behind the other.
        starts: [K + 1]; row i owns those from starts[i] to starts[i + 1].
    """

    vectors: np.ndarray
    starts: np.ndarray

    def row(self, number: int) -> np.ndarray:
        """The vectors of one row."""
        return self.vectors[self.starts[number] : self.starts[number + 1]]


@dataclass(frozen=True)
class TokenRows:
    """All that was computed of K sequences.

    Attributes:
        places: [K] int64: which rows of the next three belong to them.
        vectors: [B, D] float32, as `lazuli.outputs.finish` leaves it, or None.
        sparse: Of B rows, or None.
        multi: Of B rows, or None.
    """

    places: np.ndarray
    vectors: np.ndarray | None = None
    sparse: SparseRows | None = None
    multi: MultiRows | None = None

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, places: np.ndarray) -> "TokenRows":
        """Some of the sequences; nothing is copied."""
        return TokenRows(self.places[places], self.vectors, self.sparse, self.multi)
