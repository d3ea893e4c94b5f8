import numpy as np
import pytest
import torch

from lazuli.scoring.maxsim import Pairs
from lazuli.scoring.sparse import sparse_scores


def as_dictionaries(ids, weights, lengths):
    texts, start = [], 0
    for length in lengths:
        best: dict[int, float] = {}
        for number, weight in zip(ids[start : start + length], weights[start : start + length], strict=True):
            best[number] = max(best.get(number, 0.0), weight)
        texts.append(best)
        start += length
    return texts


def test_against_dictionaries():
    rng = np.random.default_rng(0)
    lengths = (1, 9, 40, 5, 40, 12)
    total = sum(lengths)
    ids = rng.integers(20, size=total, dtype=np.int32)
    weights = rng.random(total, dtype=np.float32) * rng.integers(2, size=total).astype(np.float32)
    pairs = Pairs(*np.divmod(np.arange(36), 6))
    cu_seqlens = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    scores = sparse_scores(torch.from_numpy(ids), torch.from_numpy(weights), cu_seqlens, pairs, 40)
    texts = as_dictionaries(ids.tolist(), weights.astype(float).tolist(), lengths)
    expected = [
        sum(weight * texts[d].get(number, 0.0) for number, weight in texts[q].items())
        for q, d in zip(pairs.queries, pairs.documents, strict=True)
    ]
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert max(expected) > 0


def test_large_ids():
    ids, weights = torch.tensor([250_001, 250_001], dtype=torch.int32), torch.tensor([0.5, 0.25])
    pairs = Pairs(np.array([0]), np.array([1]))
    assert sparse_scores(ids, weights, torch.tensor([0, 1, 2], dtype=torch.int32), pairs, 1).tolist() == [0.125]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_shows_in_its_pairs_alone(value):
    ids = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    weights = torch.tensor([1.0, 1.0, value, 1.0])
    cu_seqlens = torch.tensor([0, 1, 2, 3, 4], dtype=torch.int32)
    scores = sparse_scores(ids, weights, cu_seqlens, Pairs(np.array([0, 0, 2]), np.array([1, 2, 0])), 1)
    assert torch.isfinite(scores).tolist() == [True, False, False]
