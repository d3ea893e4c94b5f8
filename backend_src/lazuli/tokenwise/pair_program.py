"""The forward pass of pairs of texts that are scored by what an embedding model makes of each of them.

Takes sequences that hold a query and a document each, returns scores on their way. A text that several pairs of a batch
have in common is computed once, as most often the query is. Scores are computed on the device, and nothing else leaves
it. Runs without CUDA graphs.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

import numpy as np
import torch

from lazuli.batch import RaggedBatch
from lazuli.encoder import Encoder, EncoderInputs
from lazuli.lazy_tensors import Computed, LazyTensors
from lazuli.outputs.finish import NORMALIZED
from lazuli.request import Sequence
from lazuli.scoring.maxsim import Pairs, maxsim
from lazuli.scoring.sparse import sparse_scores
from lazuli.to_device import to_device
from lazuli.tokenwise.expansion import expand
from lazuli.tokenwise.facts import DENSE, MULTI, SPARSE
from lazuli.tokenwise.heads import TokenHeads
from lazuli.tokenwise.selection import select_tokens
from lazuli.tokenwise.token_program import Stepper


class PairProgram:
    """One score for each pair by each method that the model has."""

    def __init__(self, encoder: Encoder, heads: TokenHeads) -> None:
        """Join a model and its heads, of which there may be none."""
        self._encoder = encoder
        self._heads = heads

    def step(self, sequences: SequenceOf[Sequence], stepper: Stepper) -> tuple["LazyScores", list[Sequence]]:
        """Queue one pass.

        Args:
            sequences: One batch; the first of the spans of each is its query, the second its document.
            stepper: Runs it.

        Returns:
            [P, M] float32 on their way: a column for each method, in the order of `TokenFacts.outputs`; and the
            sequences.
        """
        texts = _Texts()
        queries, documents = [], []
        for sequence in sequences:
            assert sequence.spans is not None, "a pair has two spans"
            query, document = np.split(sequence.input_ids, sequence.spans[:1])
            queries.append(texts.add(query, is_query=True))
            documents.append(texts.add(document, is_query=False))
        multi = self._heads.facts.multi
        rows, seen = expand(texts.rows, texts.is_query, multi.expansion if multi is not None else None)
        batch = RaggedBatch.pack(rows, [NORMALIZED] * len(rows))
        seen = None if seen is None else seen[batch.order]
        is_query = np.array(texts.is_query)[batch.order]
        places = np.argsort(batch.order)
        pairs = Pairs(places[queries], places[documents])
        lazy = stepper.run(batch, lambda inputs: self._compute(inputs.seeing(seen), batch, pairs, is_query))
        return LazyScores(lazy), list(sequences)

    def _compute(self, inputs: EncoderInputs, batch: RaggedBatch, pairs: Pairs, is_query: np.ndarray) -> Computed:
        heads, hidden = self._heads, self._encoder.hidden(inputs)
        columns: dict[str, torch.Tensor] = {}
        if heads.facts.dense:
            columns[DENSE] = _products(self._encoder.vectors(hidden, inputs), pairs)
        if heads.weights is not None:
            weights = heads.weights(hidden, inputs.input_ids)
            longest = int(np.diff(batch.cu_seqlens)[pairs.queries].max())
            columns[SPARSE] = sparse_scores(inputs.input_ids, weights, inputs.attention.cu_seqlens, pairs, longest)
        if heads.splade is not None:
            columns[SPARSE] = _products(heads.splade(hidden, batch.cu_seqlens), pairs)
        if heads.multi is not None:
            columns[MULTI] = self._multi_scores(hidden, batch, pairs, is_query)
        return Computed({"scores": torch.stack([columns[name] for name in heads.facts.outputs], dim=1)})

    def _multi_scores(
        self, hidden: torch.Tensor, batch: RaggedBatch, pairs: Pairs, is_query: np.ndarray
    ) -> torch.Tensor:
        heads = self._heads
        assert heads.multi is not None, "the caller has looked"
        assert heads.facts.multi is not None, "there is a head"
        kept = select_tokens(batch.input_ids, batch.cu_seqlens, is_query, heads.facts.multi)
        scores = maxsim(heads.multi(kept.of(hidden)), kept.cu_seqlens, pairs)
        if not heads.facts.multi.mean:
            return scores
        lengths = np.diff(kept.cu_seqlens)[pairs.queries].astype(np.float32)
        return scores / to_device(lengths, scores.device)


class LazyScores:
    """[P, M] on their way."""

    def __init__(self, lazy: LazyTensors) -> None:
        """Wrap the tensor `scores`."""
        self._lazy = lazy

    def result(self) -> np.ndarray:
        """Wait, and return them. Call it exactly once."""
        return self._lazy.result()["scores"]


@dataclass
class _Texts:
    """Token ids of texts, each once."""

    rows: list[np.ndarray] = field(default_factory=list)
    is_query: list[bool] = field(default_factory=list)
    numbers: dict[tuple[bytes, bool], int] = field(default_factory=dict)

    def add(self, input_ids: np.ndarray, *, is_query: bool) -> int:
        """The number of a text among the rows."""
        key = (input_ids.tobytes(), is_query)
        if key not in self.numbers:
            self.numbers[key] = len(self.rows)
            self.rows.append(input_ids)
            self.is_query.append(is_query)
        return self.numbers[key]


def _products(rows: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """[B, N] to the products of the rows of each pair, [P]."""
    queries, documents = (to_device(side, rows.device) for side in (pairs.queries, pairs.documents))
    return (rows[queries] * rows[documents]).sum(dim=1)
