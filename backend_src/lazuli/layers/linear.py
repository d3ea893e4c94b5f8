"""Matrix products, with or without a bias.

On a CPU weights are kept transposed, [in, out]: for a handful of tokens that is up to three times quicker than the
[out, in] of checkpoints, and equal above. A GPU keeps [out, in], which the kernels for few tokens read row by row.
"""

from collections.abc import Mapping

import torch

from lazuli.weights import WeightReader


class Linear:
    """y = x W + b."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Wrap weights in the layout of checkpoints.

        Args:
            weight: [out, in].
            bias: [out], or None.
        """
        self._transposed = weight.t() if weight.is_cuda else weight.t().contiguous()
        self.bias = bias

    @property
    def weight(self) -> torch.Tensor:
        """[out, in]; contiguous on a GPU."""
        return self._transposed.t()

    @classmethod
    def read(
        cls,
        weights: WeightReader,
        sizes: Mapping[str, int],
        num_in: int,
        *,
        bias: bool = True,
        scale: torch.Tensor | None = None,
    ) -> "Linear":
        """Read one layer, or several that share their input and become one product.

        Args:
            weights: Where from.
            sizes: Name without `.weight` and `.bias` to output size.
            num_in: Input size.
            bias: Whether there is one.
            scale: [in], to be multiplied into the weight: that of the norm before, which then need not scale.
        """
        weight = torch.cat([weights.take(f"{name}.weight", size, num_in) for name, size in sizes.items()])
        if scale is not None:
            weight.mul_(scale)
        if not bias:
            return cls(weight)
        return cls(weight, torch.cat([weights.take(f"{name}.bias", size) for name, size in sizes.items()]))

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[T, in] to [T, out]."""
        if self.bias is None:
            return torch.mm(tokens, self._transposed)
        return torch.addmm(self.bias, tokens, self._transposed)

    def add_to(self, residual: torch.Tensor, tokens: torch.Tensor) -> None:
        """Add x W + b to [T, out] in place."""
        self.add_product_to(residual, tokens)
        if self.bias is not None:
            residual.add_(self.bias)

    def add_product_to(self, residual: torch.Tensor, tokens: torch.Tensor) -> None:
        """Add x W, without the bias, to [T, out] in place."""
        if tokens.is_cuda:
            residual.addmm_(tokens, self._transposed)  # in the product's own kernel, before rounding
        else:
            residual.add_(torch.mm(tokens, self._transposed))
