import torch
from safetensors.torch import save_file

from lazuli.layers.linear import Linear
from lazuli.layers.norm import LayerNorm
from lazuli.weights import WeightReader


def make():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(8, generator=generator) for _ in range(2)]


def test_against_the_formula():
    weight, bias = make()
    tokens = torch.randn(5, 8, generator=torch.Generator().manual_seed(1)).double() * 3 + 1
    centred = tokens - tokens.mean(dim=1, keepdim=True)
    expected = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt() * weight + bias
    torch.testing.assert_close(LayerNorm(weight, bias, 1e-5)(tokens.float()), expected.float())


def test_eps_counts():
    weight, bias = torch.ones(8), torch.zeros(8)
    tokens = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
    assert LayerNorm(weight, bias, 100.0)(tokens).abs().max() < 0.3


def test_the_residual_is_added_first():
    norm = LayerNorm(*make(), 1e-12)
    tokens, residual = (torch.randn(5, size, generator=torch.Generator().manual_seed(size)) for size in (3, 8))
    linear = Linear(torch.randn(8, 3, generator=torch.Generator().manual_seed(1)), make()[0])
    expected = norm(linear(tokens) + residual)
    torch.testing.assert_close(norm.after_adding(linear, tokens, residual), expected)


def test_the_layer_before_may_have_no_bias():
    norm = LayerNorm(*make(), 1e-12)
    tokens, residual = (torch.randn(5, size, generator=torch.Generator().manual_seed(size)) for size in (3, 8))
    linear = Linear(torch.randn(8, 3, generator=torch.Generator().manual_seed(1)))
    expected = norm(linear(tokens) + residual)
    torch.testing.assert_close(norm.after_adding(linear, tokens, residual), expected)


def test_read_without_a_bias(tmp_path):
    weight, _ = make()
    save_file({"n.weight": weight}, str(tmp_path / "model.safetensors"))
    reader = WeightReader(tmp_path, torch.device("cpu"), torch.float32)
    tokens = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    expected = torch.nn.functional.layer_norm(tokens, (8,), weight)
    torch.testing.assert_close(LayerNorm.read(reader, "n", 8, 1e-5, bias=False)(tokens), expected)


def test_read(tmp_path):
    weight, bias = make()
    save_file({"n.weight": weight, "n.bias": bias}, str(tmp_path / "model.safetensors"))
    reader = WeightReader(tmp_path, torch.device("cpu"), torch.float32)
    tokens = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(LayerNorm.read(reader, "n", 8, 1e-5)(tokens), LayerNorm(weight, bias, 1e-5)(tokens))
    reader.finish()
