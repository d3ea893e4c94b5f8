"""Answers made of the outputs of single tokens, beside vectors or without.

Takes what a request asks for, returns the tensors of its answer: see `AnswerForm` in `lazuli.request`. Rows differ in
their numbers of ids and tokens, so tensors are padded to the longest of a request; parts of an answer, which are padded
each for itself, are joined by `join`. Knows nothing of devices.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf

import numpy as np

from lazuli.errors import InputError, NonFiniteError
from lazuli.outputs.dense import DenseForm
from lazuli.tokenwise.facts import MULTI, SPARSE
from lazuli.tokenwise.rows import MultiRows, SparseRows, TokenRows

# What stands where a row has no more; zero elsewhere.
_PADDING = {"sparse_ids": -1}
# Most numbers of the vectors of an answer: twice as many bytes as gRPC carries.
_MOST_NUMBERS = 1 << 29


class TokenForm:
    """`sparse_ids` and `sparse_weights`, `multi_vector` and `multi_vector_count`, and perhaps vectors."""

    def __init__(self, wanted: Iterable[str], dense: DenseForm | None, *, is_query: bool) -> None:
        """Describe an answer.

        Args:
            wanted: `sparse`, `multi` or both.
            dense: How vectors are to be, if there are to be any.
            is_query: Whether the texts are queries: some models skip tokens of documents.
        """
        self.wanted = frozenset(wanted)
        self.dense = dense
        self.is_query = is_query
        self.finish = 0 if dense is None else dense.finish

    def lay_out(self, token_count: np.ndarray) -> dict[str, np.ndarray]:
        """Nothing can be laid out before it is known how much there is."""
        raise NotImplementedError

    def read(self, rows: np.ndarray, values: TokenRows) -> dict[str, np.ndarray]:
        """See `AnswerForm`.

        Raises:
            NonFiniteError: If the model computed NaN or Inf.
        """
        outputs: dict[str, np.ndarray] = {}
        if self.dense is not None:
            assert values.vectors is not None, "what is wanted was computed"
            outputs |= self.dense.read(rows, values.vectors[values.places])
        if SPARSE in self.wanted:
            assert values.sparse is not None, "what is wanted was computed"
            outputs |= _read_sparse(rows, values.places, values.sparse)
        if MULTI in self.wanted:
            assert values.multi is not None, "what is wanted was computed"
            outputs |= _read_multi(rows, values.places, values.multi)
        return outputs


def join(parts: SequenceOf[tuple[np.ndarray, Mapping[str, np.ndarray]]], num_rows: int) -> dict[str, np.ndarray]:
    """One set of outputs out of those of parts.

    Args:
        parts: Rows [K] and outputs [K, ...], each row once.
        num_rows: N, of all of them.

    Returns:
        [N, ...], padded to the widest.
    """
    joined = {}
    for name, first in parts[0][1].items():
        width = max(outputs[name].shape[1] for _, outputs in parts)
        shape = (num_rows, width, *first.shape[2:])
        whole = np.full(shape, _PADDING.get(name, 0), dtype=first.dtype)
        for rows, outputs in parts:
            whole[rows, : outputs[name].shape[1]] = outputs[name]
        joined[name] = whole
    return joined


def _read_sparse(rows: np.ndarray, places: np.ndarray, sparse: SparseRows) -> dict[str, np.ndarray]:
    # Not 0: a tensor without a number is a bad answer for some clients.
    width = max(1, int((sparse.starts[places + 1] - sparse.starts[places]).max()))
    ids = np.full((len(rows), width), _PADDING["sparse_ids"], dtype=np.int32)
    weights = np.zeros((len(rows), width), dtype=np.float32)
    for number, place in enumerate(places):
        own_ids, own_weights = sparse.row(place)
        ids[number, : len(own_ids)] = own_ids
        weights[number, : len(own_ids)] = own_weights
    _check_finite("sparse_weights", rows, weights)
    return {"sparse_ids": ids, "sparse_weights": weights}


def _read_multi(rows: np.ndarray, places: np.ndarray, multi: MultiRows) -> dict[str, np.ndarray]:
    counts = (multi.starts[places + 1] - multi.starts[places]).astype(np.int32)
    width, size = max(1, int(counts.max())), multi.vectors.shape[1]
    if len(rows) * width * size > _MOST_NUMBERS:
        raise InputError(f"multi_vector: {len(rows)} rows of {width} vectors are too many for one answer; send fewer")
    vectors = np.zeros((len(rows), width, size), dtype=np.float32)
    for number, place in enumerate(places):
        own = multi.row(place)
        vectors[number, : len(own)] = own
    _check_finite("multi_vector", rows, vectors.reshape(len(rows), -1))
    return {"multi_vector": vectors, "multi_vector_count": counts[:, None]}


def _check_finite(name: str, rows: np.ndarray, values: np.ndarray) -> None:
    finite = np.isfinite(values)
    if np.count_nonzero(finite) != finite.size:
        row = int(rows[np.argmin(finite.all(axis=1))])
        raise NonFiniteError(f"{name}[{row}]: the model computed NaN or Inf, so there is no usable value")
