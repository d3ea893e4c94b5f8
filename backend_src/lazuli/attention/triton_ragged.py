"""Ragged attention by a kernel of our own in the Triton language: quick for short sequences and few of them.

It takes the layout from the device, needs no plan and can be captured in a CUDA graph.
"""

import importlib.util
import math
from dataclasses import dataclass
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata, why_not_half_on_gpu

# Whether launches overlap with the end of the kernel before (programmatic dependent launch). `cu_seqlens` is read
# before that kernel has ended: nothing but what precedes it may write the layout.
PDL = False


@dataclass(frozen=True)
class TileConfig:
    """How the kernel is cut up; see its arguments.

    The blocks of a sequence's keys are counted from its own start, so its result is the same bit for bit whatever
    shares its batch, as long as the configuration is. Another `block_n` adds up in another order.

    Attributes:
        block_m: Rows of queries a program.
        block_n: Keys a step.
        warps: Of a program.
        stages: Blocks of keys on their way at a time.
        mask_all: One loop with masks instead of one without and one with.
        late_q: Read the queries with each block of keys, for sequences of one block or two.
        pack: Whether a program computes all query heads of a key head, so that each reads it once.
    """

    block_m: int
    block_n: int
    warps: int
    stages: int = 2
    mask_all: bool = False
    late_q: bool = False
    pack: bool = False


_Table = tuple[tuple[int, TileConfig], ...]  # the longest sequence that a line is for; the last is for all
# Below, one program for 64 rows leaves half of a large GPU idle: smaller ones finish sooner.
_FEW_ROWS = 64 * 132
_FEW: _Table = (
    (16, TileConfig(16, 16, 4, mask_all=True, late_q=True)),
    (32, TileConfig(16, 32, 4, mask_all=True, late_q=True)),
    (64, TileConfig(16, 64, 4, mask_all=True, late_q=True)),
    (128, TileConfig(16, 128, 4, mask_all=True, late_q=True)),
    (2**31, TileConfig(64, 64, 4, stages=3)),
)
_MANY: _Table = (
    (16, TileConfig(16, 16, 1, mask_all=True, late_q=True)),
    (32, TileConfig(32, 32, 4, mask_all=True, late_q=True)),
    (64, TileConfig(64, 64, 4, mask_all=True, late_q=True)),
    (128, TileConfig(64, 64, 4, mask_all=True)),
    (1024, TileConfig(64, 64, 4, stages=3)),
    (2**31, TileConfig(128, 64, 8, stages=3)),
)
# A wider head fills the registers.
_HUGE_HEAD = TileConfig(64, 32, 8)


class TritonAttention(AttentionBackend):
    """`lazuli.triton_kernels.attention`."""

    name = "triton"
    capturable = True

    @classmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """Needs a GPU, 16-bit numbers and a head dimension that is a power of two, from 16 to 256."""
        reason = why_not_half_on_gpu(device, dtype)
        if reason is not None:
            return reason
        if importlib.util.find_spec("triton") is None:
            return "the package triton is not installed"
        if torch.cuda.is_available() and torch.cuda.get_device_capability(device) < (8, 0):
            return "it needs compute capability 8.0 or later"
        if head_dim not in (16, 32, 64, 128, 256):
            return f"head_dim must be a power of two from 16 to 256, not {head_dim}"
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
        config = choose_config(query.shape, metadata.max_seqlen)
        return attend(query, key, value, metadata.cu_seqlens, config, causal=causal)


def choose_config(query_shape: tuple[int, ...], max_seqlen: int) -> TileConfig:
    """The configuration for queries of [T, H, head_dim]; `perf/tune_attention.py` times it against others."""
    num_tokens, num_heads, head_dim = query_shape
    if head_dim > 128:
        return _HUGE_HEAD
    table = _FEW if num_tokens * num_heads <= _FEW_ROWS else _MANY
    return next(config for longest, config in table if max_seqlen <= longest)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens: torch.Tensor,
    config: TileConfig,
    *,
    causal: bool,
) -> torch.Tensor:
    """Launch the kernel; shapes as in `AttentionBackend.forward`."""
    from lazuli.triton_kernels.attention import ragged_attention_kernel

    num_tokens, num_heads, head_dim = query.shape
    for heads in (query, key, value):
        assert heads.stride()[1:] == (head_dim, 1), "heads must be contiguous neighbours"
    num_sequences = len(cu_seqlens) - 1
    group = num_heads // key.shape[1]
    pack = group if config.pack else 1
    tokens = config.block_m // pack
    num_blocks = (num_tokens + num_sequences * (tokens - 1)) // tokens
    output = torch.empty((num_tokens, num_heads, head_dim), dtype=query.dtype, device=query.device)
    scale = math.log2(math.e) / math.sqrt(head_dim)
    strides = (query.stride(0), key.stride(0), value.stride(0))
    arguments: list[Any] = [query, key, value, output, cu_seqlens, num_sequences, *strides, scale]
    ragged_attention_kernel[(num_blocks * (num_heads // pack),)](
        *arguments,
        HEADS=num_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        CAUSAL=causal,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        PACK=pack,
        MASK_ALL=config.mask_all,
        LATE_Q=config.late_q,
        STAGES=config.stages,
        SEARCH=search_width(num_sequences),
        PDL=PDL,
        num_warps=config.warps,
        num_stages=config.stages,
        launch_pdl=PDL,
    )
    return output


def search_width(num_sequences: int) -> int:
    """How many starts are compared at a time: few values, as each means another kernel to compile."""
    return next((width for width in (1, 32, 256) if num_sequences <= width), 1024)
