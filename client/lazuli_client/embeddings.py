"""What a caller gets back, and how it is made from the outputs of the server.

Takes output tensors by name, returns `Embeddings`. Does not know protocols; the stream's parts are in
`ledger.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazuli_client.errors import ServerError
from lazuli_client.token_outputs import SparseVector, join, read_multi, read_sparse

Outputs = Mapping[str, NDArray[Any]]
# The outputs that hold dense vectors, of which an answer has one, and their dtypes.
DENSE_OUTPUTS: Mapping[str, type[np.generic]] = {
    "embedding": np.float32,
    "embedding_float16": np.float16,
    "embedding_int8": np.int8,
    "embedding_uint8": np.uint8,
    "embedding_binary": np.int8,
    "embedding_ubinary": np.uint8,
}
# Those that an answer may have beside it, or in its place.
_TOKEN_OUTPUTS = ("sparse_ids", "multi_vector")


@dataclass(frozen=True)
class Embeddings:
    """Vectors of N texts, in the order of the input.

    Attributes:
        embeddings: [N, D], float32, or of the dtype that `output` asked for; packed bits are [N, D / 8]. [N, 0] if
            only other outputs were asked for.
        token_counts: [N], int32; tokens that the model saw, special tokens included.
        truncated: [N], bool; whether the text was cut to the model's limit.
        sparse: N times ids with weights, or None if they were not asked for.
        multi: N arrays of one vector a token, [S, D'] float32, or None if they were not asked for.
    """

    embeddings: NDArray[Any]
    token_counts: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    sparse: tuple[SparseVector, ...] | None = None
    multi: tuple[NDArray[np.float32], ...] | None = None

    def __len__(self) -> int:
        return len(self.embeddings)


@dataclass(frozen=True)
class Part:
    """Vectors of some rows of a stream, in the order in which the server finished them.

    Attributes:
        indices: [K], int64; rows of the whole input.
        embeddings: [K, D], as in `Embeddings`.
        token_counts: [K], int32.
        sparse: As in `Embeddings`.
        multi: Likewise.
    """

    indices: NDArray[np.int64]
    embeddings: NDArray[Any]
    token_counts: NDArray[np.int32]
    sparse: tuple[SparseVector, ...] | None = None
    multi: tuple[NDArray[np.float32], ...] | None = None

    def __len__(self) -> int:
        return len(self.indices)


def from_outputs(outputs: Outputs, num_rows: int) -> Embeddings:
    """The answer to one unary request.

    Args:
        outputs: One of `DENSE_OUTPUTS` [N, D], `token_count` [N, 1] and, where a tokenizer took part, `truncated` [N,
            1].
        num_rows: Rows of the request.

    Raises:
        ServerError: If an output is missing or has other rows than the request.
    """
    truncated = np.zeros(num_rows, np.bool_) if "truncated" not in outputs else column(outputs, "truncated", num_rows)
    return Embeddings(
        matrix(outputs, num_rows),
        column(outputs, "token_count", num_rows).astype(np.int32),
        truncated.astype(np.bool_),
        read_sparse(outputs, num_rows),
        read_multi(outputs, num_rows),
    )


def dense_name(outputs: Outputs) -> str:
    """The output that holds dense vectors; `embedding` if there is none."""
    return next((name for name in DENSE_OUTPUTS if name in outputs), "embedding")


def count_rows(outputs: Outputs) -> int:
    """The rows that an answer holds."""
    return next((len(outputs[name]) for name in (*DENSE_OUTPUTS, *_TOKEN_OUTPUTS) if name in outputs), 0)


def matrix(outputs: Outputs, num_rows: int) -> NDArray[Any]:
    """The dense vectors as [num_rows, D] of their dtype, checked; [num_rows, 0] where others were asked for."""
    name = dense_name(outputs)
    if name not in outputs and any(other in outputs for other in _TOKEN_OUTPUTS):
        return np.zeros((num_rows, 0), np.float32)
    values = _output(outputs, name)
    if values.ndim != 2 or len(values) != num_rows:
        raise ServerError(f"{name}: the server answered shape {list(values.shape)} for {num_rows} rows")
    return values.astype(DENSE_OUTPUTS[name], copy=False)


def column(outputs: Outputs, name: str, num_rows: int) -> NDArray[Any]:
    """An output of one value a row, as [num_rows], checked."""
    values = _output(outputs, name).reshape(-1)
    if len(values) != num_rows:
        raise ServerError(f"{name}: the server answered {len(values)} values for {num_rows} rows")
    return values


def _output(outputs: Outputs, name: str) -> NDArray[Any]:
    if name not in outputs:
        raise ServerError(f"the answer of the server lacks the output {name!r}; it has {sorted(outputs)}")
    return outputs[name]


def concatenate(pieces: Sequence[Embeddings]) -> Embeddings:
    """The pieces one after the other.

    Raises:
        ServerError: If their vectors differ in length, as when the model was replaced meanwhile.
    """
    widths = {piece.embeddings.shape[1] for piece in pieces}
    if len(widths) > 1:
        raise ServerError(f"embedding: the server answered vectors of different lengths, {sorted(widths)}")
    return Embeddings(
        np.concatenate([piece.embeddings for piece in pieces]),
        np.concatenate([piece.token_counts for piece in pieces]),
        np.concatenate([piece.truncated for piece in pieces]),
        join([piece.sparse for piece in pieces]),
        join([piece.multi for piece in pieces]),
    )
