import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.attention.sdpa import SdpaAttention


def reference(query, key, value, cu_seqlens, causal=False, window=None, bias=None):
    """Softmax attention of each sequence by itself, in float64."""
    output = torch.empty_like(query, dtype=torch.float64)
    for start, end in pairwise(cu_seqlens):
        q, k, v = (tensor[start:end].double().transpose(0, 1) for tensor in (query, key, value))
        scores = q @ k.transpose(1, 2) / math.sqrt(query.shape[-1])
        distance = torch.arange(end - start) - torch.arange(end - start).unsqueeze(1)  # of the key from the query
        if bias is not None:
            reach = bias.shape[1] // 2
            scores += bias[:, distance.clamp(-reach, reach) + reach]
        hidden = (distance > 0) & causal
        if window is not None:
            hidden |= distance.abs() > window
        output[start:end] = (scores.masked_fill(hidden, -math.inf).softmax(dim=-1) @ v).transpose(0, 1)
    return output


def make(lengths, num_heads, head_dim, dtype=torch.float32):
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    generator = torch.Generator().manual_seed(5)
    shape = (3, int(cu_seqlens[-1]), num_heads, head_dim)
    return torch.randn(shape, generator=generator).to(dtype), cu_seqlens


def run(tensors, cu_seqlens, **options):
    lengths = np.diff(cu_seqlens)
    metadata = AttentionMetadata(torch.from_numpy(cu_seqlens), cu_seqlens, int(lengths.max()))
    return SdpaAttention().forward(*tensors, metadata, **options)


@pytest.mark.parametrize("lengths", [[1], [7], [64], [65], [513], [1, 1, 7, 7, 64, 65], [65, 1, 7, 1], [7] * 9])
@pytest.mark.parametrize(("num_heads", "head_dim"), [(1, 8), (12, 32), (3, 20), (2, 64)])
def test_against_plain_softmax(lengths, num_heads, head_dim):
    tensors, cu_seqlens = make(lengths, num_heads, head_dim)
    output = run(tensors, cu_seqlens)
    assert output.shape == tensors[0].shape
    torch.testing.assert_close(output.double(), reference(*tensors, cu_seqlens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 1, 6, 7, 63, 64, 65, 512])
@pytest.mark.parametrize("reach", [None, 3, 600])
def test_windows_and_biases(causal, window, reach):
    tensors, cu_seqlens = make([1, 7, 64, 65, 65, 513, 0], 2, 8)
    bias = None if reach is None else torch.randn(2, 2 * reach + 1, generator=torch.Generator().manual_seed(1))
    options = {"causal": causal, "window": window, "bias": bias}
    output = run(tensors, cu_seqlens, **options)
    torch.testing.assert_close(output.double(), reference(*tensors, cu_seqlens, **options), atol=1e-5, rtol=1e-5)


def test_grouped_heads_in_a_window():
    tensors, cu_seqlens = make([5, 200], 4, 8)
    query, key, value = tensors[0], tensors[1][:, :2], tensors[2][:, :2]
    output = run((query, key, value), cu_seqlens, window=9)
    repeated = (query, *(part.repeat_interleave(2, dim=1) for part in (key, value)))
    torch.testing.assert_close(output, run(repeated, cu_seqlens, window=9))


def test_bfloat16():
    tensors, cu_seqlens = make([7, 65], 4, 32, torch.bfloat16)
    output = run(tensors, cu_seqlens)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.double(), reference(*tensors, cu_seqlens), atol=2e-2, rtol=2e-2)


def test_views_of_one_product_as_the_models_pass_them():
    tensors, cu_seqlens = make([3, 3, 9], 4, 8)
    joined = tensors.transpose(0, 1).contiguous()  # [T, 3, H, head_dim]
    torch.testing.assert_close(run(joined.unbind(1), cu_seqlens), run(tensors, cu_seqlens))


def test_sequences_do_not_see_each_other():
    tensors, cu_seqlens = make([5, 5, 8], 2, 16)
    before = run(tensors, cu_seqlens)
    tensors[:, 5:10] = 50.0
    after = run(tensors, cu_seqlens)
    assert torch.equal(before[:5], after[:5])
    assert torch.equal(before[10:], after[10:])
    assert not torch.allclose(before[5:10], after[5:10])


def test_rows_behind_the_last_sequence_are_not_read():
    tensors, cu_seqlens = make([5, 8], 2, 16)
    padded = torch.cat([tensors, torch.full((3, 4, 2, 16), math.nan)], dim=1)
    assert torch.equal(run(padded, cu_seqlens)[:13], run(tensors, cu_seqlens))


def test_it_runs_anywhere_but_not_in_a_graph():
    for device in ("cpu", "cuda"):
        assert SdpaAttention.why_not(torch.device(device), torch.float32, 7) is None
    assert not SdpaAttention.capturable
