"""The kernels against their torch versions; without a GPU in Triton's interpreter, if it is installed."""

import pytest
import torch

pytest.importorskip("triton")

from lazuli import kernels
from lazuli.triton_kernels import gating, rotation

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of numpy, in the interpreter


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize("head_dim", [64, 80])
@pytest.mark.parametrize("num_heads", [3, 11])
def test_rotate(num_heads, head_dim):
    everything, angles = random(4, num_heads + 2, head_dim), random(9, head_dim // 2, seed=2)
    places = torch.tensor([0, 8, 3, 3], dtype=torch.int32, device=DEVICE)
    expected = everything.cpu().clone()
    tables = angles.cos(), angles.sin()
    if DEVICE == "cuda":
        torch.cuda.synchronize()  # the kernel reads them before the one before it has ended
    rotation.rotate(everything[:, :num_heads], *tables, places)
    kernels.rotate(expected[:, :num_heads], *(tensor.cpu() for tensor in (*tables, places)))
    torch.testing.assert_close(everything.cpu(), expected)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("size", [50, 1100])
def test_gate(activation, size):
    halves = 2 * random(3, 2 * size)
    torch.testing.assert_close(gating.gate(halves, activation).cpu(), kernels.gate(halves.cpu(), activation))
