"""Ragged attention by `torch.nn.functional.scaled_dot_product_attention`: the CPU's backend, and the reference.

Sequences of one length are attended to in one call; no padded token is computed. It reads the layout on the host, so it
cannot be captured in a CUDA graph.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.attention.base import AttentionBackend, AttentionMetadata

# Queries that share a call where a window hides keys: more would be masked in vain, fewer are more calls.
_LEAST_CHUNK = 64


class SdpaAttention(AttentionBackend):
    """One call per group of equally long sequences; more where there is a window, each with the keys in sight."""

    name = "sdpa"
    capturable = False
    takes_window = True
    takes_bias = True

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
        window: int | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the base class."""
        # Not filled: a padded row may hold anything, and every other row is written below.
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        grouped = query.shape[1] != key.shape[1]
        for first, count, length in metadata.equal_length_groups:
            tokens = slice(first, first + count * length)
            q, k, v = (_split(part[tokens], count, length) for part in (query, key, value))
            if length == 0 or (bias is None and (window is None or window >= length - 1)):
                attended = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
            else:
                attended = attend_masked(q, k, v, causal, window, bias)
            output[tokens] = attended.transpose(1, 2).flatten(0, 1)
        return output


def attend_masked(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    causal: bool,
    window: int | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """[count, H, length, head_dim] each; the same back."""
    length, grouped = query.shape[2], query.shape[1] != key.shape[1]
    reach = length if window is None else window
    parts: list[torch.Tensor] = []
    for queries in query.split(max(reach, _LEAST_CHUNK), dim=2):
        start = sum(part.shape[2] for part in parts)
        first, last = max(start - reach, 0), start + queries.shape[2] + reach
        keys, values = key[:, :, first:last], value[:, :, first:last]
        mask = make_mask(queries, keys, first - start, causal, window, bias)
        parts.append(F.scaled_dot_product_attention(queries, keys, values, mask, enable_gqa=grouped))
    return torch.cat(parts, dim=2)


def make_mask(
    query: torch.Tensor, key: torch.Tensor, offset: int, causal: bool, window: int | None, bias: torch.Tensor | None
) -> torch.Tensor:
    """What to add to the scores, [1 or H, queries, keys]; key 0 lies `offset` tokens behind query 0."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    # It depends on nothing but how far the key lies from the query.
    distance = torch.arange(offset - num_queries + 1, offset + num_keys, device=query.device)
    line = torch.zeros(1, len(distance), device=query.device)
    if bias is not None:
        reach = bias.shape[1] // 2
        line = bias[:, distance.clamp(-reach, reach) + reach]
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if causal:
        hidden |= distance > 0
    if window is not None:
        hidden |= distance.abs() > window
    line = line.masked_fill(hidden, -math.inf).to(query.dtype)
    # Row i of it begins at -i: the last query's comes first.
    return line.unfold(1, num_keys, 1).flip(1)


def _split(tokens: torch.Tensor, count: int, length: int) -> torch.Tensor:
    """[count * length, H, head_dim] to [count, H, length, head_dim], without a copy."""
    return tokens.view(count, length, *tokens.shape[1:]).transpose(1, 2)
