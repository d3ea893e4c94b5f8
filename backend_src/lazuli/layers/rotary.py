"""Rotary position embedding (Su et al., 2021), by itself or after a norm of each query and key head, as in Qwen3.

Takes packed projections, returns rotated queries and keys. On a GPU norm and rotation are one kernel.
"""

from typing import TYPE_CHECKING

import torch

from lazuli.kernels import qk_norm_rotary, rotate
from lazuli.layers.linear import Linear
from lazuli.layers.stream import Stream
from lazuli.weights import WeightReader

if TYPE_CHECKING:
    from lazuli.fused_linear import Workspace


class RotaryTable:
    """Cosines and sines of all angles, [max_positions, head_dim / 2] float32; one for all layers."""

    def __init__(self, head_dim: int, theta: float, max_positions: int, device: torch.device) -> None:
        """Make the table; angle i of position p is p * theta ** (-2 i / head_dim)."""
        frequencies = theta ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
        angles = torch.outer(torch.arange(max_positions, device=device, dtype=torch.float32), frequencies)
        self.cos, self.sin = angles.cos(), angles.sin()


class Rotary:
    """Rotates pairs (i, i + head_dim / 2) of each head of queries and keys by position."""

    def __init__(self, num_heads: int, head_dim: int, table: RotaryTable) -> None:
        """Take the number of all heads that are rotated, queries and keys."""
        self._num_rotated = num_heads
        self._head_dim = head_dim
        self._table = table

    def project(self, tokens: torch.Tensor, projection: Linear, position_ids: torch.Tensor) -> torch.Tensor:
        """Project to heads, of which the first are rotated; as `QkNormRotary.project`."""
        heads = projection(tokens)
        rotated = heads.unflatten(1, (-1, self._head_dim))[:, : self._num_rotated]
        rotate(rotated, self._table.cos, self._table.sin, position_ids)
        return heads


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

    def project(self, tokens: torch.Tensor, projection: Linear, position_ids: torch.Tensor) -> torch.Tensor:
        """Project to heads, of which the first are normalised and rotated.

        Args:
            tokens: [T, in].
            projection: To H + K heads that are, and more that are not.
            position_ids: [T] int32.

        Returns:
            [T, out].
        """
        heads = projection(tokens)
        num_rotated, head_dim = self._weight.shape
        rotated = heads.unflatten(1, (-1, head_dim))[:, :num_rotated]
        qk_norm_rotary(rotated, self._weight, self._table.cos, self._table.sin, position_ids, self._eps)
        return heads

    def fused(
        self, stream: Stream, projection: Linear, position_ids: torch.Tensor, workspace: "Workspace"
    ) -> torch.Tensor:
        """`project` after the norm of the stream, for few tokens on a GPU: see `lazuli.fused_linear.norm_qkv`."""
        from lazuli.fused_linear import norm_qkv

        tables = (self._table.cos, self._table.sin)
        return norm_qkv(stream, projection.weight, self._weight, *tables, position_ids, self._eps, workspace)
