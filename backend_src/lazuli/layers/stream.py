"""What the fused layers pass on to each other."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Stream:
    """Tokens on their way from layer to layer.

    Attributes:
        values: [T, D].
        sums: [T, 2, P] float32: of each token's P blocks of columns, the sum and the sum of squares.
    """

    values: torch.Tensor
    sums: torch.Tensor
