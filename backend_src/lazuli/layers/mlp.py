"""The two-layer perceptron of a transformer block."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.errors import ConfigError
from lazuli.layers.linear import Linear

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class Mlp:
    """Up, activation, down."""

    def __init__(self, up: Linear, down: Linear, activation: str) -> None:
        """Join the layers.

        Raises:
            ConfigError: If the activation is not supported.
        """
        if activation not in _ACTIVATIONS:
            raise ConfigError(f"hidden_act: {activation!r} is not one of {', '.join(_ACTIVATIONS)}")
        self._up = up
        self._down = down
        self._activation = _ACTIVATIONS[activation]

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, D] to [T, D]."""
        return self._down(self._activation(self._up(tokens)))
