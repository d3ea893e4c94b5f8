"""Ragged attention by `torch.nn.functional.scaled_dot_product_attention`: the CPU's backend, and the reference.

Sequences of one length are attended to in one call; no padded token is computed. It reads the layout on the host, so it
cannot be captured in a CUDA graph.
"""

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.attention.base import AttentionBackend, AttentionMetadata


class SdpaAttention(AttentionBackend):
    """One call per group of equally long sequences."""

    name = "sdpa"
    capturable = False

    @classmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """Runs anywhere."""
        return None

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
        *,
        causal: bool = False,
    ) -> torch.Tensor:
        """See the base class."""
        # Not filled: a padded row may hold anything, and every other row is written below.
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        for first, count, length in metadata.equal_length_groups:
            tokens = slice(first, first + count * length)
            attended = F.scaled_dot_product_attention(
                _split(query[tokens], count, length),
                _split(key[tokens], count, length),
                _split(value[tokens], count, length),
                is_causal=causal,
                enable_gqa=query.shape[1] != key.shape[1],
            )  # [count, H, length, head_dim]
            output[tokens] = attended.transpose(1, 2).flatten(0, 1)
        return output


def _split(tokens: torch.Tensor, count: int, length: int) -> torch.Tensor:
    """[count * length, H, head_dim] to [count, H, length, head_dim], without a copy."""
    return tokens.view(count, length, *tokens.shape[1:]).transpose(1, 2)
