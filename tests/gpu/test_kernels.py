"""The GPU kernels against their torch versions in float32 on the CPU."""

import pytest
import torch

from lazuli.kernels import add_rms_norm, qk_norm_rotary, silu_multiply

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TOKENS = (1, 7, 64, 65, 513, 4096)
# A bfloat16 has 8 bits: results differ by the rounding of the last one, and of the intermediate sum.
TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def random(*shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@DTYPES
@pytest.mark.parametrize("size", [384, 1000, 1024, 2560])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_add_rms_norm(num_tokens, size, dtype):
    branch, residual = random(num_tokens, size, dtype=dtype), random(num_tokens, size, dtype=dtype, seed=1)
    weight = random(size, dtype=dtype, seed=2)
    residual_gpu = residual.cuda()
    output = add_rms_norm(branch.cuda(), residual_gpu, weight.cuda(), 1e-6)
    total = residual.float()
    expected = add_rms_norm(branch.float(), total, weight.float(), 1e-6)
    torch.testing.assert_close(output.cpu().float(), expected, **TOLERANCE[dtype])
    torch.testing.assert_close(residual_gpu.cpu().float(), total, **TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("size", [50, 3072, 9728])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_silu_multiply(num_tokens, size, dtype):
    gate_up = random(num_tokens, 2 * size, dtype=dtype)
    expected = silu_multiply(gate_up.float())
    torch.testing.assert_close(silu_multiply(gate_up.cuda()).cpu().float(), expected, **TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize(("num_heads", "head_dim"), [(8, 64), (24, 128), (3, 128), (11, 64)])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_qk_norm_rotary(num_tokens, num_heads, head_dim, dtype):
    everything = random(num_tokens, num_heads + 4, head_dim, dtype=dtype)
    weight = random(num_heads, head_dim, dtype=dtype, seed=1)
    angles = random(5000, head_dim // 2, dtype=torch.float32, seed=2)
    position_ids = torch.randint(5000, (num_tokens,), dtype=torch.int32, generator=torch.Generator().manual_seed(3))
    on_gpu, on_cpu = everything.cuda(), everything.float()
    tables = angles.cos(), angles.sin()
    qk_norm_rotary(on_gpu[:, :num_heads], weight.cuda(), *(table.cuda() for table in tables), position_ids.cuda(), 1e-6)
    qk_norm_rotary(on_cpu[:, :num_heads], weight.float(), *tables, position_ids, 1e-6)
    torch.testing.assert_close(on_gpu.cpu().float(), on_cpu, **TOLERANCE[dtype])
