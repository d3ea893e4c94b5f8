"""MaxSim against loops in float64; the kernel in Triton's interpreter, where there is no GPU."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from lazuli.scoring.maxsim import Pairs, maxsim

LENGTHS = (1, 7, 33, 64, 65, 3, 130)


def random(*shape, seed=0):
    return torch.nn.functional.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def batch(size, lengths=LENGTHS):
    cu_seqlens = np.cumsum([0, *lengths]).astype(np.int32)
    return random(int(cu_seqlens[-1]), size), cu_seqlens


def all_pairs(count):
    queries, documents = np.divmod(np.arange(count * count), count)
    return Pairs(queries, documents)


def by_loops(vectors, cu_seqlens, pairs):
    exact = vectors.double().numpy()
    parts = [exact[begin:end] for begin, end in pairwise(cu_seqlens)]
    return np.array(
        [
            sum(max(float(token @ other) for other in parts[document]) for token in parts[query])
            for query, document in zip(pairs.queries, pairs.documents, strict=True)
        ]
    )


@pytest.fixture(params=["torch", "kernel"])
def score(request):
    if request.param == "torch":
        return maxsim
    pytest.importorskip("triton")
    from lazuli.triton_kernels import maxsim as kernel

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return lambda vectors, cu_seqlens, pairs: kernel.maxsim(
        vectors.to(device), cu_seqlens, pairs.queries, pairs.documents
    ).cpu()


pytestmark = [  # of numpy, in the interpreter
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
]


@pytest.mark.parametrize("size", [16, 100, 128])
def test_against_loops(score, size):
    vectors, cu_seqlens = batch(size, (1, 7, 33, 65))
    pairs = all_pairs(4)
    expected = by_loops(vectors, cu_seqlens, pairs)
    np.testing.assert_allclose(score(vectors, cu_seqlens, pairs).numpy(), expected, rtol=2e-6, atol=2e-6)


def test_all_products_may_be_negative(score):
    vectors = torch.tensor([[1.0] + [0.0] * 15, [-0.5] + [0.0] * 15, [-0.25] + [0.0] * 15])
    scores = score(vectors, np.array([0, 1, 3], dtype=np.int32), Pairs(np.array([0, 1]), np.array([1, 0])))
    np.testing.assert_allclose(scores.numpy(), [-0.25, -0.75])


def test_a_pair_does_not_depend_on_the_batch(score):
    vectors, cu_seqlens = batch(32)
    together = score(vectors, cu_seqlens, Pairs(np.array([2, 6, 3]), np.array([4, 0, 6])))
    alone = score(vectors, cu_seqlens, Pairs(np.array([3]), np.array([6])))
    assert torch.equal(together[2:], alone)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 7, 71])
def test_what_is_not_finite_shows_in_its_pairs_alone(score, value, place):
    vectors, cu_seqlens = batch(16, (3, 5, 70, 2))
    vectors[place, 3] = value
    pairs = Pairs(np.array([0, 0, 0]), np.array([2, 1, 3]))
    finite = torch.isfinite(score(vectors, cu_seqlens, pairs)).tolist()
    assert finite == ([False] * 3 if place == 0 else [place != 71, place != 7, True])
