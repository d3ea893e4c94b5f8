"""Rotary position embedding (Su et al., 2021), with the norm that Qwen3 puts before it on each query and key head.

Takes packed projections, returns rotated queries and keys. On a GPU both steps are one kernel.
"""

import torch

from lazuli.kernels import qk_norm_rotary
from lazuli.weights import WeightReader


class RotaryTable:
    """Cosines and sines of all angles, [max_positions, head_dim / 2] float32; one for all layers."""

    def __init__(self, head_dim: int, theta: float, max_positions: int, device: torch.device) -> None:
        """Make the table; angle i of position p is p * theta ** (-2 i / head_dim)."""
        frequencies = theta ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
        angles = torch.outer(torch.arange(max_positions, device=device, dtype=torch.float32), frequencies)
        self.cos, self.sin = angles.cos(), angles.sin()


class QkNormRotary:
    """RMS-normalises each head of queries and keys, then rotates pairs (i, i + head_dim / 2) by position."""

    def __init__(self, weight: torch.Tensor, eps: float, table: RotaryTable) -> None:
        """Wrap the scales of all heads, [H + K, head_dim], queries first."""
        self._weight = weight
        self._eps = eps
        self._table = table

    @classmethod
    def read(
        cls, weights: WeightReader, name: str, num_heads: tuple[int, int], head_dim: int, eps: float, table: RotaryTable
    ) -> "QkNormRotary":
        """Read `name.q_norm.weight` and `name.k_norm.weight`, for H query and K key heads."""
        scales = [weights.take(f"{name}.{part}_norm.weight", head_dim) for part in "qk"]
        return cls(
            torch.cat([scale.expand(count, -1) for scale, count in zip(scales, num_heads, strict=True)]), eps, table
        )

    def __call__(self, heads: torch.Tensor, position_ids: torch.Tensor) -> None:
        """Change queries and keys, [T, H + K, head_dim], in place; position_ids: [T] int32."""
        qk_norm_rotary(heads, self._weight, self._table.cos, self._table.sin, position_ids, self._eps)
