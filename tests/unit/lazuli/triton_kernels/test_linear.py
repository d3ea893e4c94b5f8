"""The fused layers for few tokens against the same in plain torch.

On a GPU in bfloat16; without one in float32, in Triton's interpreter, if it is installed.
"""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

pytest.importorskip("triton")

from lazuli import fused_linear
from lazuli.fused_linear import Workspace
from lazuli.layers.stream import Stream
from lazuli.triton_kernels.products import Tiling
from lazuli.triton_kernels.rows import embed, finish_layer_norm

ON_GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
TOLERANCE = {"rtol": 2e-2, "atol": 2e-2} if ON_GPU else {"rtol": 1e-4, "atol": 1e-4}
TOKENS = (1, 7, 16, 65, 256) if ON_GPU else (1, 7, 40)
K, N = 384, 256
TILINGS = [Tiling(16, 16, 128), Tiling(16, 32, 64, splits=2), Tiling(64, 64, 32, splits=3)]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of numpy, in the interpreter
    pytest.mark.parametrize("num_tokens", TOKENS),
]


@pytest.fixture(params=TILINGS, ids=lambda tiling: f"{tiling.outputs}x{tiling.splits}")
def tiling(request, monkeypatch):
    monkeypatch.setattr(fused_linear, "choose_tiling", lambda *_, **__: request.param)
    return request.param


@pytest.fixture(scope="module")
def workspace():
    return Workspace(torch.device(DEVICE), 2048, max_tokens=256)


def random(*shape, seed=0, scale=1.0, dtype=DTYPE):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(DEVICE, dtype)


def make_stream(values):
    """A stream whose sums come in several parts, as other kernels leave them."""
    parts = values.float().unflatten(1, (3, -1))
    return Stream(values, torch.stack([parts.sum(2), parts.square().sum(2)], dim=1).contiguous())


def rms(values, eps):
    return values * torch.rsqrt(values.square().mean(-1, keepdim=True) + eps)


def check(output, expected):
    torch.testing.assert_close(output.float(), expected, **TOLERANCE)


def test_norm_qkv(num_tokens, tiling, workspace, monkeypatch):
    heads, kv_heads, head_dim = 3, 2, 64
    wider = Tiling(tiling.tokens, head_dim // 2, tiling.inputs, tiling.splits)
    monkeypatch.setattr(fused_linear, "choose_tiling", lambda *_, **__: wider)
    hidden, weight = random(num_tokens, K), random((heads + 2 * kv_heads) * head_dim, K, seed=1, scale=K**-0.5)
    head_weight = random(heads + kv_heads, head_dim, seed=2)
    angles = random(500, head_dim // 2, seed=3, dtype=torch.float32)
    positions = torch.randint(500, (num_tokens,), generator=torch.Generator().manual_seed(4)).int().to(DEVICE)
    output = fused_linear.norm_qkv(
        make_stream(hidden), weight, head_weight, angles.cos(), angles.sin(), positions, 1e-6, workspace
    )
    projected = (rms(hidden.float(), 1e-6) @ weight.float().T).view(num_tokens, -1, head_dim)
    normed = rms(projected[:, : heads + kv_heads], 1e-6) * head_weight.float()
    turned = torch.complex(*normed.chunk(2, dim=-1)) * torch.polar(torch.ones_like(angles), angles)[positions][:, None]
    rotated = torch.cat([turned.real, turned.imag], dim=-1)
    check(output, torch.cat([rotated, projected[:, heads + kv_heads :]], dim=1).flatten(1))


def test_norm_gate_up(num_tokens, tiling, workspace):
    hidden, weight = random(num_tokens, K), random(2 * N, K, seed=1, scale=K**-0.5)
    output = fused_linear.norm_gate_up(make_stream(hidden), weight, 1e-6, workspace)
    gate_up = rms(hidden.float(), 1e-6) @ weight.float().T
    check(output, F.silu(gate_up[:, 0::2]) * gate_up[:, 1::2])


def test_linear_add(num_tokens, tiling, workspace):
    tokens, weight = random(num_tokens, K), random(N, K, seed=1, scale=K**-0.5)
    residual = random(num_tokens, N, seed=2)
    output = fused_linear.linear_add(
        tokens, weight, Stream(residual, residual.float().view(num_tokens, 2, -1)), workspace
    )
    check(output.values, residual.float() + tokens.float() @ weight.float().T)
    stored = output.values.float()
    torch.testing.assert_close(output.sums[:, 0].sum(1), stored.sum(1), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(output.sums[:, 1].sum(1), stored.square().sum(1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("gelu", [False, True])
def test_layer_norm_linear(num_tokens, tiling, workspace, gelu):
    hidden = random(num_tokens, K) + 0.5
    weight, bias = random(N, K, seed=1, scale=K**-0.5), random(N, seed=2)
    norm_weight, norm_bias = random(K, seed=3), random(K, seed=4)
    stream = Stream((hidden * norm_weight).contiguous(), make_stream(hidden).sums)
    folded = weight.float() @ norm_weight.float(), weight.float() @ norm_bias.float() + bias.float()
    output = fused_linear.layer_norm_linear(stream, weight, *folded, 1e-5, workspace, gelu=gelu)
    normed = F.layer_norm(hidden.float(), (K,), norm_weight.float(), norm_bias.float(), 1e-5)
    expected = F.linear(normed, weight.float(), bias.float())
    check(output, F.gelu(expected) if gelu else expected)


def test_linear_add_layer_norm(num_tokens, tiling, workspace):
    tokens, weight, bias = random(num_tokens, N), random(K, N, seed=1, scale=N**-0.5), random(K, seed=2)
    if N % (tiling.splits * tiling.inputs):
        pytest.skip("K does not divide")
    residual = random(num_tokens, K, seed=3) + 0.5
    norm_weight, norm_bias, following = (random(K, seed=seed) for seed in (4, 5, 6))
    stream = Stream((residual * norm_weight).contiguous(), make_stream(residual).sums)
    output = fused_linear.linear_add_layer_norm(
        tokens, weight, bias, stream, norm_weight, norm_bias, 1e-5, following, workspace
    )
    normed = F.layer_norm(residual.float(), (K,), norm_weight.float(), norm_bias.float(), 1e-5)
    expected = normed + F.linear(tokens.float(), weight.float(), bias.float())
    check(output.values, expected * following.float())
    finished = finish_layer_norm(output.values, output.sums, following, norm_bias, 1e-5)
    check(finished, F.layer_norm(expected, (K,), following.float(), norm_bias.float(), 1e-5))


@pytest.mark.parametrize("with_positions", [False, True])
def test_embedding_leaves_the_sums_of_its_rows(num_tokens, with_positions):
    tokens, positions, scale = random(50, K), random(60, K, seed=1), random(K, seed=2)
    generator = torch.Generator().manual_seed(3)
    ids, places = (torch.randint(50, (num_tokens,), generator=generator).int().to(DEVICE) for _ in range(2))
    values, sums = embed(ids, places, tokens, positions if with_positions else None, scale)
    expected = (tokens[ids] + positions[places] if with_positions else tokens[ids]).float()
    check(values, expected * scale.float())
    torch.testing.assert_close(sums[:, :, 0], torch.stack([expected.sum(1), expected.square().sum(1)], dim=1))
