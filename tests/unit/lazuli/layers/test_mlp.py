import pytest
import torch
from transformers.activations import ACT2FN

from lazuli.errors import ConfigError
from lazuli.layers.linear import Linear
from lazuli.layers.mlp import GATES, GateUp, Mlp


def layer(num_in, num_out, seed):
    generator = torch.Generator().manual_seed(seed)
    return Linear(torch.randn(num_out, num_in, generator=generator), torch.randn(num_out, generator=generator))


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_against_the_activation_of_transformers(activation):
    tokens = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    up, down = layer(3, 8, 2), layer(8, 3, 3)
    torch.testing.assert_close(Mlp(up, down, activation).inner(tokens), ACT2FN[activation](up(tokens)))


def test_gate_up():
    gate, up, scale = (
        torch.randn(*shape, generator=torch.Generator().manual_seed(9)) for shape in ((8, 3), (8, 3), (3,))
    )
    up = up.flip(0)
    tokens = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    scaled = tokens * scale
    expected = torch.nn.functional.silu(scaled @ gate.T) * (scaled @ up.T)
    torch.testing.assert_close(GateUp(gate, up, scale)(tokens), expected)


@pytest.mark.parametrize("activation", GATES)
def test_gates_of_other_activations_and_biases(activation):
    gate, up = layer(3, 8, 2), layer(3, 8, 3)
    tokens = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    layers = GateUp(gate.weight, up.weight, activation=activation, bias=torch.cat([gate.bias, up.bias]))
    torch.testing.assert_close(layers(tokens), ACT2FN[activation](gate(tokens)) * up(tokens))


def test_another_activation_is_named():
    with pytest.raises(ConfigError, match="hidden_act: 'silu' is not one of gelu, gelu_new, gelu_pytorch_tanh, relu"):
        Mlp(layer(3, 8, 2), layer(8, 3, 3), "silu")
