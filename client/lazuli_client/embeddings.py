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

Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Embeddings:
    """Vectors of N texts, in the order of the input.

    Attributes:
        embeddings: [N, D], float32.
        token_counts: [N], int32; tokens that the model saw, special tokens included.
        truncated: [N], bool; whether the text was cut to the model's limit.
    """

    embeddings: NDArray[np.float32]
    token_counts: NDArray[np.int32]
    truncated: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.embeddings)


@dataclass(frozen=True)
class Part:
    """Vectors of some rows of a stream, in the order in which the server finished them.

    Attributes:
        indices: [K], int64; rows of the whole input.
        embeddings: [K, D], float32.
        token_counts: [K], int32.
    """

    indices: NDArray[np.int64]
    embeddings: NDArray[np.float32]
    token_counts: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.indices)


def from_outputs(outputs: Outputs, num_rows: int) -> Embeddings:
    """The answer to one unary request.

    Args:
        outputs: `embedding` [N, D], `token_count` [N, 1] and, where a tokenizer took part, `truncated` [N,
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
    )


def matrix(outputs: Outputs, num_rows: int) -> NDArray[np.float32]:
    """The output `embedding` as float32 [num_rows, D], checked."""
    values = _output(outputs, "embedding")
    if values.ndim != 2 or len(values) != num_rows:
        raise ServerError(f"embedding: the server answered shape {list(values.shape)} for {num_rows} rows")
    return values.astype(np.float32, copy=False)


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
    )
