import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import save_file

from lazuli.errors import ConfigError
from lazuli.layers.linear import Linear
from lazuli.weights import WeightReader


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    shapes = {"q.weight": (4, 3), "q.bias": (4,), "k.weight": (4, 3), "k.bias": (4,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def weights(tmp_path, tensors):
    save_file(tensors, str(tmp_path / "model.safetensors"))
    return WeightReader(tmp_path, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("num_tokens", [1, 7, 65])
def test_against_torch(tensors, num_tokens):
    tokens = torch.randn(num_tokens, 3, generator=torch.Generator().manual_seed(1))
    layer = Linear(tensors["q.weight"], tensors["q.bias"])
    torch.testing.assert_close(layer(tokens), F.linear(tokens, tensors["q.weight"], tensors["q.bias"]))


def test_several_become_one_product_in_their_order(tensors, weights):
    tokens = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    joined = Linear.read(weights, {"k": 4, "q": 4}, 3)(tokens)
    weights.finish()
    for name, part in zip(["k", "q"], joined.split(4, dim=1), strict=True):
        torch.testing.assert_close(part, F.linear(tokens, tensors[f"{name}.weight"], tensors[f"{name}.bias"]))


def test_other_sizes_are_refused(weights):
    with pytest.raises(ConfigError, match=r"'q\.weight' has shape \[4, 3\], expected \[3, 4\]"):
        Linear.read(weights, {"q": 3}, 4)


@pytest.mark.parametrize("bias", [False, True])
def test_adding_to_a_residual(tensors, bias):
    tokens, residual = (torch.randn(5, size, generator=torch.Generator().manual_seed(size)) for size in (3, 4))
    layer = Linear(tensors["q.weight"], tensors["q.bias"] if bias else None)
    expected = residual + layer(tokens)
    layer.add_to(residual, tokens)
    torch.testing.assert_close(residual, expected)


def test_without_a_bias(tensors, weights):
    tokens = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    joined = Linear.read(weights, {"q": 4, "k": 4}, 3, bias=False)(tokens)
    torch.testing.assert_close(joined, torch.cat([tokens @ tensors[f"{name}.weight"].T for name in "qk"], dim=1))
