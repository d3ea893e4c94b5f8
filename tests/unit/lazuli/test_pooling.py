import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from lazuli.outputs.quantize import Quantizer
from lazuli.pooling import pool, pool_and_finish

MODES = ("mean", "cls", "last")


def reference(hidden, cu_seqlens, mode):
    vectors = []
    for start, end in pairwise(cu_seqlens):
        tokens = hidden[start:end].double()
        vectors.append({"mean": tokens.mean(dim=0), "cls": tokens[0], "last": tokens[-1]}[mode])
    return torch.stack(vectors)


def make(lengths, size=16, dtype=torch.float32):
    cu_seqlens = [0, *np.cumsum(lengths).tolist()]
    hidden = torch.randn(cu_seqlens[-1], size, generator=torch.Generator().manual_seed(3)).to(dtype)
    return hidden, cu_seqlens


def run(hidden, cu_seqlens, mode):
    return pool(hidden, torch.tensor(cu_seqlens, dtype=torch.int32), mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [[1], [5], [1, 1, 1], [1, 7, 64, 65], [513, 1, 33], [2] * 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_against_a_plain_loop(mode, lengths, dtype):
    hidden, cu_seqlens = make(lengths, dtype=dtype)
    vectors = run(hidden, cu_seqlens, mode)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.double(), reference(hidden, cu_seqlens, mode), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [math.nan, math.inf, 1e30])
def test_padded_tokens_at_the_end_are_not_read(mode, padding):
    hidden, cu_seqlens = make([3, 4])
    padded = torch.cat([hidden, torch.full((5, 16), padding)])
    assert torch.equal(run(padded, cu_seqlens, mode), run(hidden, cu_seqlens, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_padded_tokens", [0, 5])
def test_empty_sequences_at_the_end_do_not_touch_the_others(mode, num_padded_tokens):
    hidden, cu_seqlens = make([3, 4])
    padded = torch.cat([hidden, torch.full((num_padded_tokens, 16), math.nan)])
    vectors = run(padded, [*cu_seqlens, 7, 7, 7], mode)
    assert vectors.shape == (5, 16)
    assert torch.equal(vectors[:2], run(hidden, cu_seqlens, mode))


@pytest.mark.parametrize("mode", MODES)
def test_a_row_does_not_depend_on_what_shares_the_batch(mode):
    hidden, cu_seqlens = make([5, 17, 64, 2])
    together = run(hidden, cu_seqlens, mode)
    for row, (start, end) in enumerate(pairwise(cu_seqlens)):
        assert torch.equal(run(hidden[start:end], [0, end - start], mode)[0], together[row])


def test_the_mean_of_bfloat16_is_summed_in_float32():
    hidden = torch.ones(1001, 1, dtype=torch.bfloat16)
    hidden[0] = 1000
    assert run(hidden, [0, 1001], "mean").item() == pytest.approx(2000 / 1001, rel=1e-6)


def test_an_unknown_mode_is_named():
    with pytest.raises(ValueError, match="unknown pooling 'max'"):
        run(*make([3]), "max")


def test_vectors_are_finished_as_their_codes_say():
    hidden, cu_seqlens = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]]), torch.tensor([0, 1, 2, 3])
    codes = torch.tensor([1, 0, 1], dtype=torch.int32)
    vectors = pool_and_finish(hidden, cu_seqlens, "cls", codes, 1, Quantizer())
    torch.testing.assert_close(vectors, torch.tensor([[0.6, 0.8], [3.0, 4.0], [0.0, 0.0]]))
