"""The GPU versions of `lazuli.kernels`, in the Triton language.

One program handles one row (or some heads of a row), held in registers: each tensor is read and written once.
"""

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _add_rms_norm_kernel(
    branch,
    residual,
    weight,
    output,
    size,
    eps,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * size
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    values = tl.load(branch + row + columns, mask=inside, other=0.0).to(tl.float32)
    values += tl.load(residual + row + columns, mask=inside, other=0.0).to(tl.float32)
    # Rounded as it is stored: the norm and the next residual must see the same number.
    rounded = values.to(residual.dtype.element_ty)
    tl.store(residual + row + columns, rounded, mask=inside)
    values = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / size + eps)
    scaled = values * scale * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row + columns, scaled.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _silu_multiply_kernel(gate_up, output, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    gate = tl.load(gate_up + row * 2 * size + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * size + size + columns, mask=inside, other=0.0).to(tl.float32)
    product = gate * tl.sigmoid(gate) * up
    tl.store(output + row * size + columns, product.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _qk_norm_rotary_kernel(
    heads, weight, cos, sin, position_ids, token_stride, num_heads, eps, HALF: tl.constexpr, HEADS: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    columns = tl.arange(0, HALF)[None, :]
    inside = head < num_heads
    places = head * 2 * HALF + columns  # [HEADS, HALF] of the first halves
    row = heads + token * token_stride
    first = tl.load(row + places, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(row + HALF + places, mask=inside, other=0.0).to(tl.float32)
    mean_square = (tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)) / (2 * HALF)
    scale = tl.rsqrt(mean_square + eps)[:, None]
    first *= scale * tl.load(weight + places, mask=inside, other=0.0).to(tl.float32)
    second *= scale * tl.load(weight + HALF + places, mask=inside, other=0.0).to(tl.float32)
    position = tl.load(position_ids + token).to(tl.int64) * HALF
    cosine = tl.load(cos + position + columns)
    sine = tl.load(sin + position + columns)
    tl.store(row + places, (first * cosine - second * sine).to(heads.dtype.element_ty), mask=inside)
    tl.store(row + HALF + places, (second * cosine + first * sine).to(heads.dtype.element_ty), mask=inside)


def add_rms_norm(branch: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See `lazuli.kernels.add_rms_norm`."""
    assert branch.is_contiguous(), "rows are found by their number"
    assert residual.is_contiguous(), "rows are found by their number"
    output = torch.empty_like(branch)
    num_tokens, size = branch.shape
    block = triton.next_power_of_2(size)
    arguments: list[Any] = [branch, residual, weight, output, size, eps]
    _add_rms_norm_kernel[(num_tokens,)](*arguments, BLOCK=block, num_warps=4 if block <= 2048 else 8)
    return output


def silu_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    """See `lazuli.kernels.silu_multiply`."""
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    output = torch.empty((num_tokens, size), dtype=gate_up.dtype, device=gate_up.device)
    block = 1024
    grid = (num_tokens, triton.cdiv(size, block))
    _silu_multiply_kernel[grid](gate_up, output, size, BLOCK=block, num_warps=4)
    return output


def qk_norm_rotary(
    heads: torch.Tensor,
    weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor,
    eps: float,
) -> None:
    """See `lazuli.kernels.qk_norm_rotary`."""
    num_tokens, num_heads, head_dim = heads.shape
    assert heads.stride(2) == 1, "a head must be contiguous"
    assert heads.stride(1) == head_dim, "heads must be neighbours"
    assert weight.is_contiguous(), "heads are found by their number"
    # Several heads make a program worth launching.
    tile = min(8, triton.next_power_of_2(num_heads))
    grid = (num_tokens, triton.cdiv(num_heads, tile))
    arguments: list[Any] = [heads, weight, cos, sin, position_ids, heads.stride(0), num_heads, eps]
    _qk_norm_rotary_kernel[grid](*arguments, HALF=head_dim // 2, HEADS=tile, num_warps=4)
