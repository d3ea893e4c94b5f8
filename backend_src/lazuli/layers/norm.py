"""Layer normalisation, with the residual added first."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.kernels import biased_layer_norm
from lazuli.layers.linear import Linear
from lazuli.layers.stream import Stream
from lazuli.weights import WeightReader

if TYPE_CHECKING:
    from lazuli.fused_linear import Workspace


class LayerNorm:
    """Normalises over the last dimension, then scales and shifts."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
        """Wrap weights [D] and bias [D]."""
        self.weight = weight
        self.bias = bias
        self.eps = eps

    @classmethod
    def read(cls, weights: WeightReader, name: str, size: int, eps: float) -> "LayerNorm":
        """Read `name.weight` and `name.bias`."""
        return cls(weights.take(f"{name}.weight", size), weights.take(f"{name}.bias", size), eps)

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, D] to [T, D]."""
        return F.layer_norm(tokens, self.weight.shape, self.weight, self.bias, self.eps)

    def after_adding(self, linear: Linear, tokens: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Normalise linear(tokens) + residual; overwrites the residual, which saves a buffer."""
        if not tokens.is_cuda:
            return self(linear(tokens).add_(residual))
        assert linear.bias is not None, "each of the layers before a norm has one"
        linear.add_product_to(residual, tokens)
        return biased_layer_norm(residual, linear.bias, self.weight, self.bias, self.eps)


class NormThenLinear:
    """A layer norm and the layer that follows, in one kernel of a GPU: see `fused_linear.layer_norm_linear`."""

    def __init__(self, norm: LayerNorm, linear: Linear, *, gelu: bool = False) -> None:
        """Work out what the norm's scale and shift make of the layer."""
        assert linear.bias is not None, "each of the layers after a norm has one"
        weight = linear.weight.float()
        self._linear = linear
        self._slope = weight @ norm.weight.float()
        self._offset = weight @ norm.bias.float() + linear.bias.float()
        self._eps = norm.eps
        self._gelu = gelu

    def __call__(self, stream: Stream, workspace: "Workspace") -> torch.Tensor:
        """[T, D], before the norm but multiplied by its scale, to [T, out]."""
        from lazuli.fused_linear import layer_norm_linear

        weights = (self._linear.weight, self._slope, self._offset)
        return layer_norm_linear(stream, *weights, self._eps, workspace, gelu=self._gelu)
