"""Attention where the last tokens of some sequences are seen by no token, not even by themselves.

Such are the tokens that late interaction appends to short queries: they look at the query, and nothing looks at them.
Takes another backend, to which it leaves every batch without any.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.attention.sdpa import attend_masked, make_mask


class ExpandingAttention(AttentionBackend):
    """Queries of one length each for itself, in torch: they are few and short."""

    name = "expanding"
    capturable = False

    def __init__(self, usual: AttentionBackend) -> None:
        """Wrap the backend of all other batches."""
        self._usual = usual
        self.plans = usual.plans
        self.grid_by_longest = usual.grid_by_longest
        self.takes_window = usual.takes_window
        self.takes_bias = usual.takes_bias

    @classmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """It is not chosen, but put around the one that is."""
        return "it is put around others"

    def describe(self) -> str:
        """See the base class."""
        return self._usual.describe()

    def plan(self, metadata: AttentionMetadata) -> None:
        """See the base class."""
        self._usual.plan(metadata)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
        *,
        causal: bool = False,
        window: int | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the base class."""
        if metadata.seen_tokens is None:
            return self._usual.forward(query, key, value, metadata, causal=causal, window=window, bias=bias)
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        bounds = metadata.cu_seqlens_cpu.tolist()
        for (first, last), seen in zip(pairwise(bounds), metadata.seen_tokens.tolist(), strict=True):
            tokens, keys = slice(first, last), slice(first, first + seen)
            # [1, H, tokens, head_dim] each
            q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in (query[tokens], key[keys], value[keys]))
            output[tokens] = _attend(q, k, v, causal, window, bias)[0].transpose(0, 1)
        return output


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    causal: bool,
    window: int | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    grouped = query.shape[1] != key.shape[1]
    plain = bias is None and not causal and (window is None or window >= query.shape[2] - 1)
    if not plain and query.shape[2] == key.shape[2]:
        return attend_masked(query, key, value, causal, window, bias)
    mask = None if plain else make_mask(query, key, 0, causal, window, bias)
    return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=grouped)
