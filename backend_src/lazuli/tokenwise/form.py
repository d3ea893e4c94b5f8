"""Answers made of the outputs of single tokens, beside vectors or without.

Takes what a request asks for, returns the tensors of its answer: see `AnswerForm` in `lazuli.request`. Rows differ in
their numbers of ids and tokens, so tensors are padded to the longest of a request; parts of an answer, which are padded
each for itself, are joined by `join`. Knows nothing of devices.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from math import prod

import numpy as np

from lazuli.errors import NonFiniteError
from lazuli.outputs.dense import DenseForm
from lazuli.tokenwise.answer_size import NUMBER_BYTES, SPARSE_BYTES, AnswerLimit
from lazuli.tokenwise.facts import MULTI, SPARSE
from lazuli.tokenwise.rows import MultiRows, SparseRows, TokenRows

# What stands where a row has no more; zero elsewhere.
_PADDING = {"sparse_ids": -1}
# The tensors whose size depends on the longest row.
_FILLED_UP = ("sparse_ids", "sparse_weights", "multi_vector")


class TokenForm:
    """`sparse_ids` and `sparse_weights`, `multi_vector` and `multi_vector_count`, and perhaps vectors."""

    def __init__(
        self, wanted: Iterable[str], dense: DenseForm | None, *, is_query: bool, limit: AnswerLimit | None = None
    ) -> None:
        """Describe an answer.

        Args:
            wanted: `sparse`, `multi` or both.
            dense: How vectors are to be, if there are to be any.
            is_query: Whether the texts are queries: some models skip tokens of documents.
            limit: How large it may be; None for any size.
        """
        self.wanted = frozenset(wanted)
        self.dense = dense
        self.is_query = is_query
        self.limit = limit
        self.finish = 0 if dense is None else dense.finish

    def lay_out(self, token_count: np.ndarray) -> dict[str, np.ndarray]:
        """Nothing can be laid out before it is known how much there is."""
        raise NotImplementedError

    def check(self, rows: SequenceOf[np.ndarray], *, in_parts: bool) -> None:
        """Look at the tokens of a request before anything of it is computed.

        Args:
            rows: Ids of N texts.
            in_parts: Whether the answer comes in parts.

        Raises:
            InputError: If the answer would be too large.
        """
        if self.limit is not None:
            self.limit.check_tokens(rows, self.wanted, is_query=self.is_query, in_parts=in_parts)

    def portion(self, values: TokenRows) -> list[np.ndarray]:
        """Places of K rows in as few parts as are not too large; such of similar lengths are together."""
        counts, sizes = self._measure(values)
        everything = np.arange(len(values))
        if self.limit is None or len(values) * int(counts.max(axis=0) @ sizes) <= self.limit.max_bytes:
            return [everything]
        portions: list[list[int]] = []
        widest = np.zeros(len(sizes), dtype=np.int64)
        for place in np.argsort(-(counts @ sizes), kind="stable").tolist():
            wider = np.maximum(widest, counts[place])
            if not portions or (len(portions[-1]) + 1) * int(wider @ sizes) > self.limit.max_bytes:
                portions.append([])
                wider = counts[place]
            portions[-1].append(place)
            widest = wider
        return [np.sort(np.array(portion)) for portion in portions]

    def _measure(self, values: TokenRows) -> tuple[np.ndarray, np.ndarray]:
        """How many entries each row has of each output, [K, O], and the bytes of an entry, [O]."""
        counts, sizes = [], []
        if SPARSE in self.wanted and values.sparse is not None:
            counts.append(values.sparse.starts[values.places + 1] - values.sparse.starts[values.places])
            sizes.append(SPARSE_BYTES)
        if MULTI in self.wanted and values.multi is not None:
            counts.append(values.multi.starts[values.places + 1] - values.multi.starts[values.places])
            sizes.append(NUMBER_BYTES * values.multi.vectors.shape[1])
        return np.stack(counts, axis=1).astype(np.int64), np.array(sizes, dtype=np.int64)

    def read(self, rows: np.ndarray, values: TokenRows) -> dict[str, np.ndarray]:
        """See `AnswerForm`.

        Raises:
            InputError: If there is too much of it.
            NonFiniteError: If the model computed NaN or Inf.
        """
        if self.limit is not None:
            counts, sizes = self._measure(values)
            widths = counts.max(axis=0)
            self.limit.check_bytes(self.wanted, len(rows), widths.tolist(), len(rows) * int(widths @ sizes))
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


class Widths:
    """To how much the rows of a whole answer are filled up, while its parts come."""

    def __init__(self, form: TokenForm, num_rows: int) -> None:
        """Begin an answer of N rows."""
        self._form = form
        self._num_rows = num_rows
        self._widths: dict[str, int] = {}

    def add(self, outputs: Mapping[str, np.ndarray]) -> None:
        """Count a part in.

        Raises:
            InputError: If the whole becomes too large.
        """
        if self._form.limit is None:
            return
        filled = [name for name in _FILLED_UP if name in outputs]
        self._widths = {name: max(self._widths.get(name, 0), outputs[name].shape[1]) for name in filled}
        in_row = sum(self._widths[name] * _entry_bytes(outputs[name]) for name in filled)
        self._form.limit.check_bytes(self._form.wanted, self._num_rows, self._widths.values(), self._num_rows * in_row)


def _entry_bytes(tensor: np.ndarray) -> int:
    return tensor.itemsize * prod(tensor.shape[2:])


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
