"""Attention with rotary positions that sees all of a sequence or a window of it.

Takes packed tokens, returns what their heads have gathered, packed. The projection that follows is left to the caller,
who may add it to a residual.
"""

from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.layers.linear import Linear
from lazuli.layers.rotary import QkNormRotary, Rotary


class RotaryAttention:
    """One product to queries, keys and values; rotation; attention."""

    def __init__(
        self,
        backend: AttentionBackend,
        projection: Linear,
        rotary: Rotary | QkNormRotary,
        num_heads: tuple[int, int, int],
        window: int | None = None,
        *,
        causal: bool = False,
    ) -> None:
        """Join the parts.

        Args:
            backend: What attends.
            projection: To all heads: queries, keys, values.
            rotary: Of queries and keys.
            num_heads: Of queries, keys and values.
            window: How far a token sees to both sides; None for everything.
            causal: Whether a token sees only itself and those before it.
        """
        self._backend = backend
        self._projection = projection
        self._rotary = rotary
        self._num_heads = num_heads
        self._window = window
        self._causal = causal

    def __call__(self, tokens: torch.Tensor, position_ids: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """[T, D] and [T] int32 to [T, H head_dim]."""
        return self.attend(self._rotary.project(tokens, self._projection, position_ids), metadata)

    def attend(self, heads: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """Of heads that are projected and rotated: [T, (H + 2 K) head_dim] to [T, H head_dim]."""
        query, key, value = heads.unflatten(1, (sum(self._num_heads), -1)).split(self._num_heads, dim=1)
        options: dict[str, Any] = {"causal": self._causal, "window": self._window}
        return self._backend.forward(query, key, value, metadata, **options).flatten(1)
