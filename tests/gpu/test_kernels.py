"""The GPU kernels against their torch versions in float32 on the CPU."""

import numpy as np
import pytest
import torch

from lazuli.kernels import biased_layer_norm, gate, qk_norm_rotary, rms_norm, rotate, silu_multiply
from lazuli.layers.embedding import TokenEmbedding
from lazuli.outputs.finish import Finish, finish
from lazuli.outputs.quantize import Quantizer, make_ranges
from lazuli.pooling import pool_and_finish

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
def test_norms(num_tokens, size, dtype):
    tokens = random(num_tokens, size, dtype=dtype)
    vectors = [random(size, dtype=dtype, seed=seed) for seed in (1, 2, 3)]
    on_gpu, exact = [vector.cuda() for vector in vectors], [vector.float() for vector in vectors]
    output = rms_norm(tokens.cuda(), on_gpu[0], 1e-6)
    torch.testing.assert_close(output.cpu().float(), rms_norm(tokens.float(), exact[0], 1e-6), **TOLERANCE[dtype])
    output = biased_layer_norm(tokens.cuda(), *on_gpu, 1e-5)
    expected = biased_layer_norm(tokens.float(), *exact, 1e-5)
    torch.testing.assert_close(output.cpu().float(), expected, **TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("size", [384, 1024])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_token_embedding(num_tokens, size, dtype):
    tables = random(1000, size, dtype=dtype), random(64, size, dtype=dtype, seed=1)
    generator = torch.Generator().manual_seed(2)
    places = [torch.randint(len(table), (num_tokens,), dtype=torch.int32, generator=generator) for table in tables]
    embedded = TokenEmbedding(*(table.cuda() for table in tables))(*(place.cuda() for place in places))
    assert torch.equal(embedded.cpu(), TokenEmbedding(*tables)(*places))


@pytest.mark.parametrize("mode", ["mean", "cls", "last"])
@pytest.mark.parametrize("longest", [64, 65, 4096])
def test_pooling_and_normalisation(mode, longest):
    lengths = [1, 7, longest, 64, 33, 0, 0]
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    hidden = random(int(cu_seqlens[-1]) + 9, 384, dtype=torch.bfloat16)
    codes = torch.tensor([1, 0, 1, 1, 0, 1, 0], dtype=torch.int32)
    output = pool_and_finish(hidden.cuda(), cu_seqlens.cuda(), mode, codes.cuda(), longest, Quantizer()).cpu()
    expected = pool_and_finish(hidden, cu_seqlens, mode, codes, longest, Quantizer())
    torch.testing.assert_close(output[:5], expected[:5], rtol=1e-5, atol=1e-6)
    rows = hidden[: len(codes)].contiguous()
    finished = finish(rows.cuda(), codes.cuda(), Quantizer()).cpu()
    torch.testing.assert_close(finished, finish(rows, codes, Quantizer()))


@pytest.mark.parametrize("name", ["none", "native", "ranges"])
@pytest.mark.parametrize("size", [384, 1024, 2560, 4096])
def test_finishing_behind_pooling(size, name):
    """Each encoding in one batch; sums in another order may put a value on the other side of a step."""
    ranges = torch.stack([make_ranges(-torch.ones(size), torch.ones(size) * 2, size) for _ in range(3)])
    ranges[2, 1] *= 3
    quantizer = {"none": Quantizer(), "native": Quantizer(native=True), "ranges": Quantizer(ranges=ranges)}[name]
    on_gpu = Quantizer(quantizer.native, quantizer.ranges.cuda())
    integers = {"none": [], "native": ["int8"], "ranges": ["int8", "uint8"]}[name]
    chosen = [
        Finish(flag, encoding, kept, 2)
        for encoding in ("float32", "float16", "binary", "ubinary", *integers)
        for flag in (False, True)
        for kept in (0, 256)
    ]
    codes = torch.tensor([one.code for one in chosen], dtype=torch.int32)
    lengths = [(7 * number) % 150 + 1 for number in range(len(chosen))]
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    hidden = random(int(cu_seqlens[-1]), size, dtype=torch.bfloat16) * 3
    rows = pool_and_finish(hidden.cuda(), cu_seqlens.cuda(), "mean", codes.cuda(), max(lengths), on_gpu).cpu()
    expected = pool_and_finish(hidden, cu_seqlens, "mean", codes, max(lengths), quantizer)
    for number, one in enumerate(chosen):
        kept = one.dimensions or size
        if one.encoding in ("float32", "float16"):
            dtype = getattr(torch, one.encoding)
            pairs = [row[number].view(dtype)[:kept].float() for row in (rows, expected)]
            torch.testing.assert_close(*pairs, rtol=2e-3, atol=2e-3)
        elif one.encoding in ("int8", "uint8") or (name == "native" and one.encoding == "binary"):
            dtype = torch.uint8 if one.encoding == "uint8" else torch.int8
            mine, other = (row[number].view(dtype)[:kept].int() for row in (rows, expected))
            assert (mine - other).abs().max() <= (2 if one.encoding == "binary" else 1)
            assert (mine != other).float().mean() < 0.01
        else:
            mine, other = (
                np.unpackbits(row[number].view(torch.uint8)[: kept // 8].numpy()) for row in (rows, expected)
            )
            assert (mine != other).mean() < 0.01
        if one.encoding != "float32" or one.dimensions:
            assert rows[number, -1] == 0


@DTYPES
@pytest.mark.parametrize("size", [50, 3072, 9728])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_silu_multiply(num_tokens, size, dtype):
    gate_up = random(num_tokens, 2 * size, dtype=dtype)
    expected = silu_multiply(gate_up.float())
    torch.testing.assert_close(silu_multiply(gate_up.cuda()).cpu().float(), expected, **TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("size", [50, 1152, 3072])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_gate(num_tokens, size, activation, dtype):
    halves = random(num_tokens, 2 * size, dtype=dtype)
    expected = gate(halves.float(), activation)
    torch.testing.assert_close(gate(halves.cuda(), activation).cpu().float(), expected, **TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize(("num_heads", "head_dim"), [(24, 64), (4, 256), (11, 64)])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_rotate(num_tokens, num_heads, head_dim, dtype):
    everything = random(num_tokens, num_heads + 4, head_dim, dtype=dtype)
    angles = random(5000, head_dim // 2, dtype=torch.float32, seed=2)
    position_ids = torch.randint(5000, (num_tokens,), dtype=torch.int32, generator=torch.Generator().manual_seed(3))
    on_gpu, on_cpu = everything.cuda(), everything.float()
    tables = angles.cos(), angles.sin()
    rotate(on_gpu[:, :num_heads], *(table.cuda() for table in tables), position_ids.cuda())
    rotate(on_cpu[:, :num_heads], *tables, position_ids)
    torch.testing.assert_close(on_gpu.cpu().float(), on_cpu, **TOLERANCE[dtype])


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
