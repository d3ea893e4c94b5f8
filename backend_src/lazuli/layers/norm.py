"""Normalisation of tokens: by mean and variance, with the residual added first, or by the mean square."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.kernels import biased_layer_norm, rms_norm
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
    def read(cls, weights: WeightReader, name: str, size: int, eps: float, *, bias: bool = True) -> "LayerNorm":
        """Read `name.weight` and, if there is one, `name.bias`."""
        weight = weights.take(f"{name}.weight", size)
        return cls(weight, weights.take(f"{name}.bias", size) if bias else torch.zeros_like(weight), eps)

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, D] to [T, D]."""
        return F.layer_norm(tokens, self.weight.shape, self.weight, self.bias, self.eps)

    def after_adding(self, linear: Linear, tokens: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Normalise linear(tokens) + residual; overwrites the residual, which saves a buffer."""
        if not tokens.is_cuda:
            return self(linear(tokens).add_(residual))
        linear.add_product_to(residual, tokens)
        if linear.bias is None:
            return self(residual)
        return biased_layer_norm(residual, linear.bias, self.weight, self.bias, self.eps)


class RmsNorm:
    """Divides by the root mean square over the last dimension, then scales."""

    def __init__(self, scale: torch.Tensor, eps: float, dtype: torch.dtype) -> None:
        """Wrap a scale [D] of any precision, for tokens of `dtype`."""
        # The quick kernel of a CPU wants one dtype.
        self._scale = scale if scale.is_cuda else scale.to(dtype)
        self._eps = eps

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, D] to [T, D]."""
        return rms_norm(tokens, self._scale, self._eps)


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
