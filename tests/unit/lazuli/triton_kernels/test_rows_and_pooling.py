"""Kernels that work row by row, and pooling, against torch; without a GPU in Triton's interpreter, if it is installed.

`tests/gpu/test_kernels.py` has more sizes, and bfloat16.
"""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

pytest.importorskip("triton")

from lazuli import kernels, pooling
from lazuli.layers.embedding import TokenEmbedding
from lazuli.outputs.finish import finish
from lazuli.outputs.quantize import Quantizer
from lazuli.segments import SEGMENT_BIT
from lazuli.triton_kernels import pooling as triton_pooling
from lazuli.triton_kernels import rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of numpy, in the interpreter


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize("size", [48, 64])
def test_norms(size):
    tokens, before, weight, bias = random(5, size), *(random(size, seed=seed) for seed in (1, 2, 3))
    torch.testing.assert_close(rows.rms_norm(tokens, weight, 1e-6), F.rms_norm(tokens, (size,), weight, 1e-6))
    torch.testing.assert_close(rows.rms_norm(tokens, None, 1e-6), F.rms_norm(tokens, (size,), eps=1e-6))
    expected = F.layer_norm(tokens + before, (size,), weight, bias, 1e-5)
    torch.testing.assert_close(rows.biased_layer_norm(tokens, before, weight, bias, 1e-5), expected)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("segments", [1, 2])
def test_embed(segments, scaled):
    tokens, positions, scale = random(30, 48), random(segments * 9, 48, seed=1), random(48, seed=2)
    ids = torch.tensor([3, 29, 0, 3, 7], dtype=torch.int32)
    if segments == 2:
        ids |= torch.tensor([0, 1, 1, 1, 0], dtype=torch.int32) << SEGMENT_BIT
    places = torch.tensor([0, 8, 3, 0, 5], dtype=torch.int32)
    expected = TokenEmbedding(tokens.cpu(), positions.cpu(), segments)(ids, places)
    length = 9 if segments == 2 else 0
    arguments = (ids.to(DEVICE), places.to(DEVICE), tokens, positions, scale if scaled else None)
    output, sums = rows.embed(*arguments, segment_length=length)
    torch.testing.assert_close(output.cpu(), expected * scale.cpu() if scaled else expected)
    torch.testing.assert_close(sums[:, :, 0].cpu(), torch.stack([expected.sum(1), expected.square().sum(1)], dim=1))


@pytest.mark.parametrize("size", [50, 2100])
def test_silu_multiply(size):
    gate_up = random(3, 2 * size)
    torch.testing.assert_close(rows.silu_multiply(gate_up), F.silu(gate_up[:, 0::2]) * gate_up[:, 1::2])


@pytest.mark.parametrize("head_dim", [64, 80])
@pytest.mark.parametrize("num_heads", [3, 11])
def test_qk_norm_rotary(num_heads, head_dim):
    everything, weight = random(4, num_heads + 2, head_dim), random(num_heads, head_dim, seed=1)
    angles, places = random(9, head_dim // 2, seed=2), torch.tensor([0, 8, 3, 3], dtype=torch.int32, device=DEVICE)
    expected = everything.cpu().clone()
    tables = angles.cos(), angles.sin()
    if DEVICE == "cuda":
        torch.cuda.synchronize()  # the kernel reads them before the one before it has ended
    rows.qk_norm_rotary(everything[:, :num_heads], weight, *tables, places, 1e-6)
    on_cpu = [tensor.cpu() for tensor in (weight, *tables, places)]
    kernels.qk_norm_rotary(expected[:, :num_heads], *on_cpu, 1e-6)
    torch.testing.assert_close(everything.cpu(), expected)


@pytest.mark.parametrize("mode", pooling.MODES)
@pytest.mark.parametrize("longest", [64, 65, 200])
def test_pooling(mode, longest):
    lengths = [1, 7, longest, 64, 33, 0, 0]
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    hidden = random(int(cu_seqlens[-1]) + 9, 48)
    hidden[cu_seqlens[-1] :] = float("nan")
    codes = torch.tensor([1, 0, 1, 1, 0, 1, 0], dtype=torch.int32)
    output = triton_pooling.pool(hidden, cu_seqlens.to(DEVICE), mode, codes.to(DEVICE), longest, Quantizer()).cpu()
    expected = pooling.pool_and_finish(hidden.cpu(), cu_seqlens, mode, codes, longest, Quantizer())
    torch.testing.assert_close(output[:5], expected[:5])


def test_normalisation():
    vectors, codes = random(3, 48), torch.tensor([1, 0, 1], dtype=torch.int32)
    expected = finish(vectors.cpu(), codes, Quantizer())
    torch.testing.assert_close(triton_pooling.finish(vectors, codes.to(DEVICE), Quantizer()).cpu(), expected)
