"""Layer normalisation, with the residual added first."""

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.weights import WeightReader


class LayerNorm:
    """Normalises over the last dimension, then scales and shifts."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
        """Wrap weights [D] and bias [D]."""
        self._weight = weight
        self._bias = bias
        self._eps = eps

    @classmethod
    def read(cls, weights: WeightReader, name: str, size: int, eps: float) -> "LayerNorm":
        """Read `name.weight` and `name.bias`."""
        return cls(weights.take(f"{name}.weight", size), weights.take(f"{name}.bias", size), eps)

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, D] to [T, D]."""
        return F.layer_norm(tokens, self._weight.shape, self._weight, self._bias, self._eps)

    def after_adding(self, branch: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Normalise branch + residual; overwrites `branch`, which saves a buffer."""
        return self(branch.add_(residual))
