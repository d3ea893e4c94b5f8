"""The two-layer perceptrons of transformer blocks."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.errors import ConfigError
from lazuli.kernels import activated_product, silu_multiply
from lazuli.kernels import gate as apply_gate
from lazuli.layers.linear import Linear

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
# Of gates: name in `config.json` to what `kernels.gate` calls it.
GATES = {"silu": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


class Mlp:
    """Up, activation, down."""

    def __init__(self, up: Linear, down: Linear, activation: str) -> None:
        """Join the layers.

        Raises:
            ConfigError: If the activation is not supported.
        """
        if activation not in _ACTIVATIONS:
            raise ConfigError(f"hidden_act: {activation!r} is not one of {', '.join(_ACTIVATIONS)}")
        self.up = up
        self.down = down
        self._activation = _ACTIVATIONS[activation]

    def inner(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, D] to [T, I]: up and activation."""
        if self._activation is F.gelu and tokens.is_cuda:
            product = activated_product("gelu", tokens, self.up.weight, self.up.bias)
            if product is not None:
                return product
        return self._activation(self.up(tokens))


class GateUp:
    """The gated half of a perceptron (Shazeer, 2020): f(x G) * (x U), where f is most often the SiLU.

    With it, on a GPU, rows of G and U take turns in one matrix, so that a block of the product holds both halves of its
    results.
    """

    def __init__(
        self,
        gate: torch.Tensor,
        up: torch.Tensor,
        scale: torch.Tensor | None = None,
        *,
        activation: str = "silu",
        bias: torch.Tensor | None = None,
    ) -> None:
        """Wrap weights.

        Args:
            gate: G, [I, D].
            up: U, [I, D].
            scale: [D], that of the norm before, which then need not scale.
            activation: f, one of `GATES`.
            bias: [2 I], those of the gates first.
        """
        self._activation = GATES[activation]
        self._take_turns = gate.is_cuda and activation == "silu" and bias is None
        rows = torch.stack([gate, up], dim=1).flatten(0, 1) if self._take_turns else torch.cat([gate, up])
        self.linear = Linear(rows if scale is None else rows.mul_(scale), bias)

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, D] to [T, I]."""
        if not self._take_turns:
            return apply_gate(self.linear(tokens), self._activation)
        product = activated_product("silu_multiply", tokens, self.linear.weight, None)
        return silu_multiply(self.linear(tokens)) if product is None else product
