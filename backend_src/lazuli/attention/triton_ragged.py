"""Ragged attention by a kernel of our own in the Triton language: quick for short sequences and few of them.

It takes the layout from the device, needs no plan and can be captured in a CUDA graph.
"""

import importlib.util
import math
from dataclasses import dataclass
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata, why_not_half_on_gpu
from lazuli.attention.table import typical_length


@dataclass(frozen=True)
class TileConfig:
    """How the kernel is cut up; see its arguments.

    The blocks of a sequence's keys are counted from its own start, so its result is the same bit for bit whatever
    shares its batch, as long as the configuration is. Another `block_n` adds up in another order.

    Attributes:
        block_m: Queries of a block.
        block_n: Keys a step.
        warps: Of a program.
        stages: Blocks of keys on their way at a time.
        mask_all: One loop with masks instead of one without and one with.
        late_q: Read the queries with each block of keys, for sequences of one block or two.
    """

    block_m: int
    block_n: int
    warps: int
    stages: int = 2
    mask_all: bool = False
    late_q: bool = False


_Table = tuple[tuple[int, TileConfig], ...]  # up to which length a line is for; the last is for all
# Up to so many rows, blocks of 64 leave half of a large GPU idle: smaller ones finish sooner.
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
_SHORT = 1024  # has blocks of as many queries as keys
# Warps that a large GPU runs at a time, or more.
_MOST_WARPS = 132 * 32
# A wider head fills the registers.
_HUGE_HEAD = TileConfig(64, 32, 8)


class TritonAttention(AttentionBackend):
    """`lazuli.triton_kernels.attention`."""

    name = "triton"
    capturable = True
    takes_window = True
    takes_bias = True

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
        window: int | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the base class."""
        window = metadata.hiding_window(window)
        config = choose_config(query.shape, metadata.num_sequences, metadata.max_seqlen, window)
        return attend(query, key, value, metadata.cu_seqlens, config, causal=causal, window=window, bias=bias)


def choose_config(
    query_shape: tuple[int, ...], num_sequences: int, max_seqlen: int, window: int | None = None
) -> TileConfig:
    """The configuration for queries of [T, H, head_dim]; `perf/tune_attention.py` times it against others.

    The bound of the longest sequence says little about the others where there may be many: a bucket of 3584 tokens for
    448 sequences has the bound 3584. With few rows all blocks run at once, so only the longest counts.
    """
    num_tokens, num_heads, head_dim = query_shape
    if head_dim > 128:
        return _HUGE_HEAD
    if num_tokens * num_heads <= _FEW_ROWS:
        return _line(_FEW, max_seqlen)
    length = typical_length(num_tokens, num_sequences, max_seqlen)
    # The more queries share a block, the more keys it reads that most of them do not see.
    return _line(_MANY, length if window is None else min(length, _SHORT))


def _line(table: _Table, length: float) -> TileConfig:
    return next(config for longest, config in table if length <= longest)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens: torch.Tensor,
    config: TileConfig,
    *,
    causal: bool,
    window: int | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Launch the kernel; shapes as in `AttentionBackend.forward`."""
    from lazuli.triton_kernels.attention import ragged_attention_kernel
    from lazuli.triton_kernels.early import launch_options
    from lazuli.triton_kernels.layout import most_blocks, search_width

    num_tokens, num_heads, head_dim = query.shape
    for heads in (query, key, value):
        assert heads.stride()[1:] == (head_dim, 1), "heads must be contiguous neighbours"
    assert bias is None or bias.is_contiguous(), "heads are found by their number"
    num_sequences = len(cu_seqlens) - 1
    num_programs = most_blocks(num_tokens, num_sequences, config.block_m) * num_heads
    # Most of them would find nothing to do if there may be far more sequences than there are blocks of tokens.
    loop = num_sequences * config.block_m > 2 * num_tokens and num_programs > _MOST_WARPS // config.warps
    if loop:
        num_programs = _MOST_WARPS // config.warps
    output = torch.empty((num_tokens, num_heads, head_dim), dtype=query.dtype, device=query.device)
    scale = math.log2(math.e) / math.sqrt(head_dim)
    strides = (query.stride(0), key.stride(0), value.stride(0))
    arguments: list[Any] = [query, key, value, output, bias, cu_seqlens, num_sequences, *strides, scale]
    ragged_attention_kernel[(num_programs,)](
        *arguments,
        HEADS=num_heads,
        GROUP=num_heads // key.shape[1],
        HEAD_DIM=head_dim,
        CAUSAL=causal,
        WINDOW=window,
        REACH=None if bias is None else bias.shape[1] // 2,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        MASK_ALL=config.mask_all,
        LATE_Q=config.late_q,
        STAGES=config.stages,
        SEARCH=search_width(num_sequences),
        LOOP=loop,
        num_warps=config.warps,
        num_stages=config.stages,
        **launch_options(query.device),
    )
    return output
