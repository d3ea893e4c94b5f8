"""The GPU version of `lazuli.kernels.rotate`: one program rotates some heads of a token, in place.

Tables are read before the kernel before has ended. See `early`.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from lazuli.triton_kernels.early import launch_options, let_next_start, wait_for_previous


@triton.jit
def _rotate_kernel(
    heads, cos, sin, position_ids, token_stride, num_heads, HALF: tl.constexpr, HEADS: tl.constexpr, EARLY: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    columns = tl.arange(0, triton.next_power_of_2(HALF))[None, :]
    inside = (head < num_heads) & (columns < HALF)
    position = tl.load(position_ids + token).to(tl.int64) * HALF
    cosine = tl.load(cos + position + columns, mask=columns < HALF, other=0.0)
    sine = tl.load(sin + position + columns, mask=columns < HALF, other=0.0)
    wait_for_previous(EARLY)
    firsts = heads + token * token_stride + head * 2 * HALF + columns
    first = tl.load(firsts, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(firsts + HALF, mask=inside, other=0.0).to(tl.float32)
    let_next_start(EARLY)
    tl.store(firsts, (first * cosine - second * sine).to(heads.dtype.element_ty), mask=inside)
    tl.store(firsts + HALF, (second * cosine + first * sine).to(heads.dtype.element_ty), mask=inside)


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position_ids: torch.Tensor) -> None:
    """See `lazuli.kernels.rotate`."""
    num_tokens, num_heads, head_dim = heads.shape
    assert heads.stride()[1:] == (head_dim, 1), "heads must be contiguous neighbours"
    # Several heads make a program worth launching.
    tile = min(8, triton.next_power_of_2(num_heads))
    grid = (num_tokens, triton.cdiv(num_heads, tile))
    arguments: list[Any] = [heads, cos, sin, position_ids, heads.stride(0), num_heads]
    options = launch_options(heads.device)
    _rotate_kernel[grid](*arguments, HALF=head_dim // 2, HEADS=tile, num_warps=4, **options)
