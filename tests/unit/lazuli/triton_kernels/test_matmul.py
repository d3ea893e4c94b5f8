"""Products with an activation against the same in plain torch.

On a GPU from Hopper on; without one in Triton's interpreter, if it is installed.
"""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

pytest.importorskip("triton")

from lazuli.triton_kernels.matmul import Blocks, matmul

ON_GPU = torch.cuda.is_available()
# The interpreter does not compute products of bfloat16.
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
TOLERANCE = 2e-2 if ON_GPU else 1e-4
K, N = 256, 512
CUTS = [Blocks(128, 128, 64, 8, 3, 1), Blocks(64, 128, 64, 4, 3, 2)]
if ON_GPU:
    CUTS += [Blocks(128, 256, 64, 8, 3, 1, specialize=True), Blocks(128, 128, 64, 4, 3, 100)]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of numpy, in the interpreter
    pytest.mark.skipif(
        ON_GPU and torch.cuda.get_device_capability() < (9, 0), reason="needs the tensor memory accelerator"
    ),
    pytest.mark.parametrize("num_tokens", (1, 65, 513, 4096) if ON_GPU else (1, 65)),
    pytest.mark.parametrize("blocks", CUTS, ids=lambda blocks: f"{blocks.tokens}x{blocks.outputs}x{blocks.programs}"),
]


@pytest.fixture(autouse=True)
def one_multiprocessor_without_a_gpu(monkeypatch):
    """In the interpreter there is no device to ask; few programs, so that each has several blocks."""
    if not ON_GPU:
        properties = type("Properties", (), {"multi_processor_count": 1})
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)


def random(*shape, seed=0, scale=1.0, dtype=DTYPE):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(DEVICE, dtype)


def operands(num_tokens):
    tokens, weight = random(num_tokens, K), random(N, K, seed=1, scale=K**-0.5)
    return tokens, weight, tokens.float() @ weight.float().T


def check(output, expected):
    torch.testing.assert_close(output.float(), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_gelu(num_tokens, blocks):
    tokens, weight, product = operands(num_tokens)
    bias = random(N, seed=2, scale=3)
    check(matmul(tokens, weight, bias, "gelu", blocks), F.gelu(product + bias.float()))


def test_gelu_from_end_to_end(num_tokens, blocks):
    """The formula against the exact one: where it bends, in the tails, and where its polynomial must not matter."""
    tokens, weight = torch.zeros(num_tokens, K, dtype=DTYPE, device=DEVICE), random(N, K)
    bias = torch.cat([torch.linspace(-6, 6, N - 32), torch.linspace(-200, 200, 32)]).to(DEVICE, DTYPE)
    output = matmul(tokens, weight, bias, "gelu", blocks)
    rounding = 2**-8 + 2**-11 if ON_GPU else 0.0
    limit = 3e-5 + (2**-12 if ON_GPU else 0.0) * bias.float().abs() + rounding * F.gelu(bias.float()).abs()
    assert ((output.float() - F.gelu(bias.float())).abs() <= limit).all()


def test_silu_multiply(num_tokens, blocks):
    tokens, weight, product = operands(num_tokens)
    check(matmul(tokens, weight, None, "silu_multiply", blocks), F.silu(product[:, 0::2]) * product[:, 1::2])
