"""Ragged attention by torch's built-in variable-length FlashAttention 2 kernel: always there on a GPU.

It takes the layout from the device, so it can be captured in a CUDA graph.
"""

import inspect
from functools import cache
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata, why_not_half_on_gpu


class TorchVarlenAttention(AttentionBackend):
    """`torch.nn.attention.varlen.varlen_attn`."""

    name = "torch_varlen"
    capturable = True
    grid_by_longest = True
    takes_window = True

    @classmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """Needs a GPU, 16-bit numbers and a head dimension that is a multiple of 8, up to 256."""
        reason = why_not_half_on_gpu(device, dtype)
        if reason is not None:
            return reason
        if head_dim % 8 or head_dim > 256:
            return f"head_dim must be a multiple of 8 up to 256, not {head_dim}"
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
        from torch.nn.attention.varlen import varlen_attn

        lengths = (metadata.cu_seqlens, metadata.cu_seqlens, metadata.max_seqlen, metadata.max_seqlen)
        assert bias is None, "the kernel has none"
        reach = metadata.hiding_window(window)
        back = -1 if reach is None else reach  # no limit
        output = varlen_attn(query, key, value, *lengths, window_size=(back, 0 if causal else back), **_grouped_heads())
        assert isinstance(output, torch.Tensor), "nothing but the output was asked for"
        return output


@cache
def _grouped_heads() -> dict[str, Any]:
    """The kernel shares key heads by itself; from torch 2.13 on it must be told that this is meant."""
    from torch.nn.attention.varlen import varlen_attn

    return {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
