"""The forward pass of requests for the outputs of single tokens.

Takes sequences of such requests, returns a result on its way with the sequences in its order. One of the programs that
the runner knows beside that of vectors; its batches run without CUDA graphs.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from lazuli.batch import RaggedBatch
from lazuli.encoder import Encoder, EncoderInputs
from lazuli.lazy_tensors import Computed, LazyTensors, Tensors
from lazuli.request import Sequence
from lazuli.tokenwise.expansion import expand
from lazuli.tokenwise.facts import MULTI, SPARSE
from lazuli.tokenwise.form import TokenForm
from lazuli.tokenwise.heads import TokenHeads
from lazuli.tokenwise.rows import MultiRows, SparseRows, TokenRows
from lazuli.tokenwise.selection import Selection, select_tokens


class Stepper(Protocol):
    """What is needed of `CpuStepper` and `CudaStepper`."""

    def run(self, batch: RaggedBatch, compute: Callable[[EncoderInputs], Computed]) -> LazyTensors:
        """Queue a pass."""


class TokenProgram:
    """Weights, vectors of tokens and vectors of texts, whatever the requests of a batch want together."""

    def __init__(self, encoder: Encoder, heads: TokenHeads) -> None:
        """Join a model and its heads."""
        self._encoder = encoder
        self._heads = heads

    def step(self, sequences: SequenceOf[Sequence], stepper: Stepper) -> tuple["LazyRows", list[Sequence]]:
        """Queue one pass.

        Args:
            sequences: One batch, of requests whose form is a `TokenForm`.
            stepper: Runs it.

        Returns:
            The result, and the sequences in its order.
        """
        forms = [_token_form(sequence) for sequence in sequences]
        multi = self._heads.facts.multi
        rows, seen = expand(
            [sequence.input_ids for sequence in sequences],
            [form.is_query for form in forms],
            multi.expansion if multi is not None else None,
        )
        batch = RaggedBatch.pack(rows, [sequence.request.finish for sequence in sequences])
        wanted = frozenset[str]().union(*(form.wanted for form in forms))
        with_vectors = any(form.dense is not None for form in forms)
        is_query = np.array([form.is_query for form in forms])[batch.order]
        kept = self._select(batch, is_query) if MULTI in wanted else None
        seen = None if seen is None else seen[batch.order]
        lazy = stepper.run(batch, lambda inputs: self._compute(inputs.seeing(seen), batch, wanted, with_vectors, kept))
        return LazyRows(lazy, batch, kept), [sequences[row] for row in batch.order]

    def _select(self, batch: RaggedBatch, is_query: np.ndarray) -> Selection:
        assert self._heads.facts.multi is not None, "requests were checked"
        return select_tokens(batch.input_ids, batch.cu_seqlens, is_query, self._heads.facts.multi)

    def _compute(
        self,
        inputs: EncoderInputs,
        batch: RaggedBatch,
        wanted: frozenset[str],
        with_vectors: bool,
        kept: Selection | None,
    ) -> Computed:
        heads, hidden = self._heads, self._encoder.hidden(inputs)
        tensors: dict[str, torch.Tensor] = {}
        later = None
        if with_vectors:
            tensors["vectors"] = self._encoder.vectors(hidden, inputs)
        if kept is not None and heads.multi is not None:
            tensors["multi"] = heads.multi(kept.of(hidden))
        if SPARSE in wanted and heads.weights is not None:
            tensors["weights"] = heads.weights(hidden, inputs.input_ids)
        if SPARSE in wanted and heads.splade is not None:
            matrix = heads.splade(hidden, batch.cu_seqlens)
            later = _Entries(matrix)
        return Computed(tensors, later)


@dataclass(frozen=True)
class _Entries:
    """The entries of a matrix that are not zero."""

    matrix: torch.Tensor

    def __call__(self) -> Tensors:
        places = self.matrix.nonzero()
        return {"places": places, "entries": self.matrix[places[:, 0], places[:, 1]]}


def _token_form(sequence: Sequence) -> TokenForm:
    form = sequence.request.form
    assert isinstance(form, TokenForm), "the service makes such requests with such forms only"
    return form


class LazyRows:
    """The result of one pass, on its way."""

    def __init__(self, lazy: LazyTensors, batch: RaggedBatch, kept: Selection | None) -> None:
        """Wrap it.

        Args:
            lazy: The tensors.
            batch: Of which they are.
            kept: The tokens that have a vector, if vectors of tokens are among them.
        """
        self._lazy = lazy
        self._batch = batch
        self._kept = kept

    def result(self) -> TokenRows:
        """Wait, and return what belongs to each sequence. Call it exactly once."""
        arrays = self._lazy.result()
        multi = None
        if self._kept is not None:
            multi = MultiRows(arrays["multi"], self._kept.cu_seqlens)
        places = np.arange(self._batch.num_sequences)
        return TokenRows(places, arrays.get("vectors"), self._sparse(arrays), multi)

    def _sparse(self, arrays: Mapping[str, np.ndarray]) -> SparseRows | None:
        if "weights" in arrays:
            return SparseRows.from_tokens(self._batch.input_ids, arrays["weights"], self._batch.cu_seqlens)
        if "entries" in arrays:
            return SparseRows.from_places(arrays["places"], arrays["entries"], self._batch.num_sequences)
        return None
