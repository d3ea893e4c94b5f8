"""Each measured cut of the fused layers, many times over one workspace: always right, always the same."""

import json
from importlib.resources import files

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

pytest.importorskip("triton")

from lazuli import fused_linear
from lazuli.fused_linear import Workspace
from lazuli.layers.stream import Stream

ENTRIES = json.loads((files("lazuli") / "linear_tilings.json").read_text(encoding="utf-8"))
FEW = [entry for entry in ENTRIES if "tiling" in entry and entry["kind"] != "norm_qkv"]
TIMES = 300

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def workspace():
    return Workspace(torch.device("cuda", 0), 6144)


def random(*shape, scale=1.0, dtype=torch.bfloat16):
    return (torch.randn(shape, device="cuda") * scale).to(dtype)


def make(kind, num_outputs, size, num_tokens, workspace):
    """A function that runs the layer once, and what it should give."""
    torch.manual_seed(num_tokens)
    tokens, scale = random(num_tokens, size), size**-0.5
    sums = torch.stack([tokens.float().sum(1), tokens.float().square().sum(1)], dim=1).unsqueeze(2)
    stream, exact = Stream(tokens, sums), tokens.float()
    if kind == "norm_gate_up":
        weight = random(2 * num_outputs, size, scale=scale)
        product = exact * torch.rsqrt(exact.square().mean(1, keepdim=True) + 1e-6) @ weight.float().T
        expected = F.silu(product[:, 0::2]) * product[:, 1::2]
        return lambda: fused_linear.norm_gate_up(stream, weight, 1e-6, workspace), expected
    weight = random(num_outputs, size, scale=scale)
    if kind == "linear_add":
        residual = random(num_tokens, num_outputs)
        before = Stream(residual, torch.zeros(num_tokens, 2, 1, device="cuda"))
        expected = residual.float() + exact @ weight.float().T
        return lambda: fused_linear.linear_add(tokens, weight, before, workspace).values, expected
    slope, offset = weight.float().sum(1), random(num_outputs, dtype=torch.float32)
    expected = F.gelu(F.layer_norm(exact, (size,), eps=1e-5) @ weight.float().T + offset)
    return lambda: fused_linear.layer_norm_linear(stream, weight, slope, offset, 1e-5, workspace, gelu=True), expected


@pytest.mark.parametrize("entry", FEW, ids=lambda entry: "-".join(str(value) for value in list(entry.values())[:4]))
@pytest.mark.parametrize("fewer", [0, 5])
def test_many_times(entry, fewer, workspace):
    num_tokens = entry["num_tokens"] - fewer
    run, expected = make(entry["kind"], entry["num_outputs"], entry["size"], num_tokens, workspace)
    first = run()
    torch.testing.assert_close(first.float(), expected, rtol=2e-2, atol=2e-2)
    # One behind the other without a pause, so that each begins while the one before it still runs.
    assert all(torch.equal(output, first) for output in [run() for _ in range(TIMES)])
    assert not workspace.counter.any()
