"""The GPU versions of what `lazuli.kernels` does row by row.

One program handles one row (or some heads of a row), held in registers: each tensor is read and written once. Weights
are read before the kernel before has ended, and the next one may start once only the result is to be written: late, so
that the programs of attention or of a product spread evenly. See `early`.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from lazuli.segments import SEGMENT_BIT
from lazuli.triton_kernels.early import launch_options, let_next_start, wait_for_previous

_SEGMENT_BIT = tl.constexpr(SEGMENT_BIT)


@triton.jit
def _rms_norm_kernel(tokens, weight, output, size, eps, SCALED: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * size
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    if SCALED:
        factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    values = tl.load(tokens + row + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / size + eps)
    values *= scale
    if SCALED:
        values *= factor
    let_next_start(EARLY)
    tl.store(output + row + columns, values.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _biased_layer_norm_kernel(
    tokens, before, weight, bias, output, size, eps, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * size
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    added = tl.load(before + columns, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    values = tl.load(tokens + row + columns, mask=inside, other=0.0).to(tl.float32) + added
    centred = tl.where(inside, values - tl.sum(values, axis=0) / size, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / size + eps)
    scaled = centred * scale * factor + shift
    let_next_start(EARLY)
    tl.store(output + row + columns, scaled.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _silu_multiply_kernel(gate_up, output, size, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    wait_for_previous(EARLY)
    row = tl.program_id(0).to(tl.int64)
    pairs = tl.program_id(1) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    both = tl.load(gate_up + row * 2 * size + pairs, mask=pairs < 2 * size, other=0.0).to(tl.float32)
    gate, up = tl.split(tl.reshape(both, (BLOCK, 2)))
    product = gate * tl.sigmoid(gate) * up
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(output + row * size + columns, product.to(output.dtype.element_ty), mask=columns < size)


@triton.jit
def _embed_kernel(
    input_ids,
    position_ids,
    tokens,
    positions,
    scale,
    output,
    sums,
    size,
    segment_length,
    TWO: tl.constexpr,
    SEGMENTS: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    # The first kernel of a pass: there is nothing to overlap with, but the next one may have weights to ask for.
    wait_for_previous(EARLY)
    let_next_start(EARLY)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    token = tl.load(input_ids + row).to(tl.int64)
    segment = token >> _SEGMENT_BIT
    if SEGMENTS:
        token -= segment << _SEGMENT_BIT
    token *= size
    values = tl.load(tokens + token + columns, mask=inside, other=0.0).to(tl.float32)
    if TWO:
        position = tl.load(position_ids + row).to(tl.int64)
        if SEGMENTS:
            position += segment * segment_length
        position *= size
        values += tl.load(positions + position + columns, mask=inside, other=0.0).to(tl.float32)
    values = values.to(output.dtype.element_ty).to(tl.float32)
    scaled = values
    if SCALED:
        scaled *= tl.load(scale + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row * size + columns, scaled.to(output.dtype.element_ty), mask=inside)
    tl.store(sums + row * 2, tl.sum(values, axis=0))
    tl.store(sums + row * 2 + 1, tl.sum(values * values, axis=0))


@triton.jit
def _finish_layer_norm_kernel(
    scaled, sums, weight, bias, output, size, eps, PARTS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, triton.next_power_of_2(PARTS))
    places = sums + row * 2 * PARTS + part
    mean = tl.sum(tl.load(places, mask=part < PARTS, other=0.0), axis=0) / size
    mean_square = tl.sum(tl.load(places + PARTS, mask=part < PARTS, other=0.0), axis=0) / size
    values = tl.load(scaled + row * size + columns, mask=inside, other=0.0).to(tl.float32)
    values -= mean * factor
    values *= tl.rsqrt(tl.maximum(mean_square - mean * mean, 0.0) + eps)
    values += shift
    let_next_start(EARLY)
    tl.store(output + row * size + columns, values.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _qk_norm_rotary_kernel(
    heads, weight, cos, sin, position_ids, token_stride, num_heads, eps,
    HALF: tl.constexpr, HEADS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    columns = tl.arange(0, triton.next_power_of_2(HALF))[None, :]
    inside = (head < num_heads) & (columns < HALF)
    places = head * 2 * HALF + columns  # of the first halves
    first_factor = tl.load(weight + places, mask=inside, other=0.0).to(tl.float32)
    second_factor = tl.load(weight + HALF + places, mask=inside, other=0.0).to(tl.float32)
    position = tl.load(position_ids + token).to(tl.int64) * HALF
    cosine = tl.load(cos + position + columns, mask=columns < HALF, other=0.0)
    sine = tl.load(sin + position + columns, mask=columns < HALF, other=0.0)
    wait_for_previous(EARLY)
    row = heads + token * token_stride
    first = tl.load(row + places, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(row + HALF + places, mask=inside, other=0.0).to(tl.float32)
    mean_square = (tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)) / (2 * HALF)
    scale = tl.rsqrt(mean_square + eps)[:, None]
    first *= scale * first_factor
    second *= scale * second_factor
    let_next_start(EARLY)
    tl.store(row + places, (first * cosine - second * sine).to(heads.dtype.element_ty), mask=inside)
    tl.store(row + HALF + places, (second * cosine + first * sine).to(heads.dtype.element_ty), mask=inside)


def rms_norm(tokens: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """See `lazuli.kernels.rms_norm`."""
    vectors = [tokens if weight is None else weight]
    return _by_row(_rms_norm_kernel, tokens, vectors, eps, SCALED=weight is not None)


def biased_layer_norm(
    tokens: torch.Tensor, before: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """See `lazuli.kernels.biased_layer_norm`."""
    return _by_row(_biased_layer_norm_kernel, tokens, [before, weight, bias], eps)


def _by_row(
    kernel: Any, tokens: torch.Tensor, vectors: list[torch.Tensor], eps: float, **constants: bool
) -> torch.Tensor:
    assert tokens.is_contiguous(), "rows are found by their number"
    output = torch.empty_like(tokens)
    num_tokens, size = tokens.shape
    block = triton.next_power_of_2(size)
    options = launch_options(tokens.device) | {"BLOCK": block, "num_warps": 4 if block <= 2048 else 8}
    kernel[(num_tokens,)](tokens, *vectors, output, size, eps, **constants, **options)
    return output


def embed(
    input_ids: torch.Tensor,
    position_ids: torch.Tensor,
    tokens: torch.Tensor,
    positions: torch.Tensor | None,
    scale: torch.Tensor | None = None,
    *,
    segment_length: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Look up tokens, and add their positions' vectors if there is a table of them.

    Args:
        input_ids: [T] int32, below V.
        position_ids: [T] int32, below P.
        tokens: [V, D].
        positions: [P, D], or None.
        scale: [D], multiplied in at the end, or None.
        segment_length: How many positions the table has for each segment that ids tell of (see `lazuli.segments`); 0
            if they do not.

    Returns:
        [T, D], and [T, 2, 1] float32: sum and sum of squares of each row, before the scale.
    """
    num_tokens, size = len(input_ids), tokens.shape[1]
    output = torch.empty((num_tokens, size), dtype=tokens.dtype, device=tokens.device)
    sums = torch.empty((num_tokens, 2, 1), dtype=torch.float32, device=tokens.device)
    tables = [tokens if table is None else table for table in (positions, scale)]
    arguments: list[Any] = [input_ids, position_ids, tokens, *tables, output, sums, size, segment_length]
    options = launch_options(tokens.device) | {"TWO": positions is not None, "SCALED": scale is not None}
    options |= {"SEGMENTS": segment_length > 0, "BLOCK": triton.next_power_of_2(size), "num_warps": 4}
    _embed_kernel[(num_tokens,)](*arguments, **options)
    return output, sums


def finish_layer_norm(
    scaled: torch.Tensor, sums: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """The layer norm of what `lazuli.fused_linear` passes on: [T, D] times the norm's scale, and sums of before that.

    Args:
        scaled: [T, D].
        sums: [T, 2, P] float32.
        weight: [D].
        bias: [D].
        eps: Added to the variance.

    Returns:
        [T, D].
    """
    num_tokens, size = scaled.shape
    output = torch.empty_like(scaled)
    arguments: list[Any] = [scaled, sums, weight, bias, output, size, eps]
    options = launch_options(scaled.device) | {"PARTS": sums.shape[2], "BLOCK": triton.next_power_of_2(size)}
    _finish_layer_norm_kernel[(num_tokens,)](*arguments, **options, num_warps=4)
    return output


def silu_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    """See `lazuli.kernels.silu_multiply`."""
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    output = torch.empty((num_tokens, size), dtype=gate_up.dtype, device=gate_up.device)
    assert gate_up.is_contiguous(), "rows are found by their number"
    block = 1024
    grid = (num_tokens, triton.cdiv(size, block))
    _silu_multiply_kernel[grid](gate_up, output, size, BLOCK=block, num_warps=4, **launch_options(gate_up.device))
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
    options = launch_options(heads.device)
    _qk_norm_rotary_kernel[grid](*arguments, HALF=head_dim // 2, HEADS=tile, num_warps=4, **options)
