"""Outputs of single tokens: ids with weights, and one vector a token.

Takes output tensors by name, which are padded to the longest row, returns them row by row. Does not know protocols.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazuli_client.errors import ServerError


@dataclass(frozen=True)
class SparseVector:
    """The ids of a text that have a weight, in ascending order.

    Attributes:
        ids: [K], int32.
        weights: [K], float32, above zero.
    """

    ids: NDArray[np.int32]
    weights: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)

    def as_dict(self) -> dict[int, float]:
        """Id to weight."""
        return dict(zip(self.ids.tolist(), self.weights.tolist(), strict=True))

    def dot(self, other: "SparseVector") -> float:
        """The product with another one: how similar two texts are by what they share."""
        _, mine, others = np.intersect1d(self.ids, other.ids, assume_unique=True, return_indices=True)
        return float(self.weights[mine].astype(np.float64) @ other.weights[others])


def read_sparse(outputs: Mapping[str, NDArray[Any]], num_rows: int) -> tuple[SparseVector, ...] | None:
    """`sparse_ids` and `sparse_weights`, [N, K] each and padded with -1, by row; None if there are none.

    Raises:
        ServerError: If they have other rows than the request.
    """
    if "sparse_ids" not in outputs:
        return None
    ids = _checked(outputs, "sparse_ids", num_rows, 2)
    weights = _checked(outputs, "sparse_weights", num_rows, 2)
    if ids.shape != weights.shape:
        raise ServerError(f"sparse_weights: the server answered shape {list(weights.shape)} for ids {list(ids.shape)}")
    used = ids >= 0
    return tuple(
        SparseVector(own_ids[row].astype(np.int32), own_weights[row].astype(np.float32))
        for own_ids, own_weights, row in zip(ids, weights, used, strict=True)
    )


def read_multi(outputs: Mapping[str, NDArray[Any]], num_rows: int) -> tuple[NDArray[np.float32], ...] | None:
    """`multi_vector`, [N, S, D], and `multi_vector_count`, [N, 1], as [S', D] by row; None if there are none.

    Raises:
        ServerError: If they have other rows than the request.
    """
    if "multi_vector" not in outputs:
        return None
    vectors = _checked(outputs, "multi_vector", num_rows, 3)
    counts = _checked(outputs, "multi_vector_count", num_rows, 2)[:, 0]
    return tuple(own[:count].astype(np.float32, copy=False) for own, count in zip(vectors, counts, strict=True))


def max_sim(query: NDArray[np.float32], document: NDArray[np.float32]) -> float:
    """For each vector of the query its largest product with one of the document; of these the sum.

    Args:
        query: [S, D], of `Embeddings.multi`.
        document: [S', D].
    """
    return float((query.astype(np.float64) @ document.T.astype(np.float64)).max(axis=1).sum())


def join(pieces: Sequence[tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """The rows of several answers one after the other; None if one has none."""
    if any(piece is None for piece in pieces):
        return None
    return tuple(row for piece in pieces if piece is not None for row in piece)


def _checked(outputs: Mapping[str, NDArray[Any]], name: str, num_rows: int, num_dimensions: int) -> NDArray[Any]:
    if name not in outputs:
        raise ServerError(f"the answer of the server lacks the output {name!r}; it has {sorted(outputs)}")
    values = outputs[name]
    if values.ndim != num_dimensions or len(values) != num_rows:
        raise ServerError(f"{name}: the server answered shape {list(values.shape)} for {num_rows} rows")
    return values
