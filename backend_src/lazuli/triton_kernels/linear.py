"""The fused layers for few tokens: products with the norm before them and what comes after.

`lazuli.fused_linear` says what each computes and launches it; `products` has what they share.
"""

import triton
import triton.language as tl

from lazuli.triton_kernels.products import moments, products


@triton.jit(do_not_specialize=["num_tokens"])
def norm_qkv_kernel(
    hidden,
    sums,
    weight,
    output,
    head_weight,
    cos,
    sin,
    position_ids,
    partial,
    counter,
    num_tokens,
    num_rotated,
    num_outputs,
    eps,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    LINES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,  # half a head
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """See `lazuli.fused_linear.norm_qkv`."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = rows < num_tokens
    head = tl.program_id(1)
    half = tl.arange(0, BLOCK_N)
    first = weight + (head * 2 * BLOCK_N + half) * SIZE
    low, high, complete = products(
        hidden + rows[:, None] * SIZE,
        inside[:, None],
        first,
        first + BLOCK_N * SIZE,
        partial,
        counter,
        SIZE,
        True,
        LINES,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        SPLITS,
        EARLY,
    )
    if complete:
        _, mean_square = moments(sums, rows, inside, SIZE, PARTS)
        scale = tl.rsqrt(mean_square + eps)[:, None]
        low *= scale
        high *= scale
        if head < num_rotated:
            mean_square = (tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)) / (2 * BLOCK_N)
            scale = tl.rsqrt(mean_square + eps)[:, None]
            places = head_weight + head * 2 * BLOCK_N + half
            low *= scale * tl.load(places)[None, :].to(tl.float32)
            high *= scale * tl.load(places + BLOCK_N)[None, :].to(tl.float32)
            position = tl.load(position_ids + rows, mask=inside, other=0)[:, None] * BLOCK_N + half[None, :]
            cosine = tl.load(cos + position)
            sine = tl.load(sin + position)
            turned = low * cosine - high * sine
            high = high * cosine + low * sine
            low = turned
        places = output + rows[:, None] * num_outputs + head * 2 * BLOCK_N + half[None, :]
        tl.store(places, low.to(output.dtype.element_ty), mask=inside[:, None])
        tl.store(places + BLOCK_N, high.to(output.dtype.element_ty), mask=inside[:, None])


@triton.jit(do_not_specialize=["num_tokens"])
def norm_gate_up_kernel(
    hidden,
    sums,
    weight,
    output,
    partial,
    counter,
    num_tokens,
    num_outputs,
    eps,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    LINES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """See `lazuli.fused_linear.norm_gate_up`."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = rows < num_tokens
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    gate_rows = weight + 2 * columns * SIZE
    gate, up, complete = products(
        hidden + rows[:, None] * SIZE,
        inside[:, None],
        gate_rows,
        gate_rows + SIZE,
        partial,
        counter,
        SIZE,
        True,
        LINES,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        SPLITS,
        EARLY,
    )
    if complete:
        _, mean_square = moments(sums, rows, inside, SIZE, PARTS)
        scale = tl.rsqrt(mean_square + eps)[:, None]
        gate *= scale
        product = gate * tl.sigmoid(gate) * (up * scale)
        places = output + rows[:, None] * num_outputs + columns[None, :]
        tl.store(places, product.to(output.dtype.element_ty), mask=inside[:, None])


@triton.jit(do_not_specialize=["num_tokens"])
def linear_add_kernel(
    tokens,
    weight,
    residual,
    output,
    output_sums,
    bias,
    norm_weight,
    norm_bias,
    next_norm_weight,
    sums,
    partial,
    counter,
    num_tokens,
    num_outputs,
    eps,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,  # the number of outputs again, if LAYER_NORM
    PARTS: tl.constexpr,
    LINES: tl.constexpr,
    LAYER_NORM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """See `lazuli.fused_linear.linear_add` and `linear_add_layer_norm`."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = rows < num_tokens
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_rows = weight + columns * SIZE
    product, _, complete = products(
        tokens + rows[:, None] * SIZE,
        inside[:, None],
        weight_rows,
        weight_rows,
        partial,
        counter,
        SIZE,
        False,
        LINES,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        SPLITS,
        EARLY,
    )
    if complete:
        places = rows[:, None] * num_outputs + columns[None, :]
        before = tl.load(residual + places, mask=inside[:, None], other=0.0).to(tl.float32)
        if LAYER_NORM:
            mean, mean_square = moments(sums, rows, inside, WIDTH, PARTS)
            scale = tl.rsqrt(tl.maximum(mean_square - mean * mean, 0.0) + eps)
            before = (before - mean[:, None] * tl.load(norm_weight + columns)[None, :].to(tl.float32)) * scale[:, None]
            before += tl.load(norm_bias + columns)[None, :].to(tl.float32)
            values = before + product + tl.load(bias + columns)[None, :].to(tl.float32)
            scaled = values * tl.load(next_norm_weight + columns)[None, :].to(tl.float32)
            tl.store(output + places, scaled.to(output.dtype.element_ty), mask=inside[:, None])
        else:
            # Rounded as it is stored: the next norm must see the same numbers.
            rounded = (before + product).to(output.dtype.element_ty)
            tl.store(output + places, rounded, mask=inside[:, None])
            values = rounded.to(tl.float32)
        places = output_sums + rows * 2 * tl.num_programs(1) + tl.program_id(1)
        tl.store(places, tl.sum(values, axis=1), mask=inside)
        tl.store(places + tl.num_programs(1), tl.sum(values * values, axis=1), mask=inside)


@triton.jit(do_not_specialize=["num_tokens"])
def layer_norm_linear_kernel(
    hidden,
    sums,
    weight,
    slope,
    offset,
    output,
    partial,
    counter,
    num_tokens,
    num_outputs,
    eps,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    LINES: tl.constexpr,
    GELU: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """See `lazuli.fused_linear.layer_norm_linear`."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = rows < num_tokens
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_rows = weight + columns * SIZE
    product, _, complete = products(
        hidden + rows[:, None] * SIZE,
        inside[:, None],
        weight_rows,
        weight_rows,
        partial,
        counter,
        SIZE,
        False,
        LINES,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        SPLITS,
        EARLY,
    )
    if complete:
        mean, mean_square = moments(sums, rows, inside, SIZE, PARTS)
        scale = tl.rsqrt(tl.maximum(mean_square - mean * mean, 0.0) + eps)
        product = (product - mean[:, None] * tl.load(slope + columns)[None, :]) * scale[:, None]
        product += tl.load(offset + columns)[None, :]
        if GELU:
            product *= 0.5 * (1.0 + tl.erf(product * 0.7071067811865476))
        places = output + rows[:, None] * num_outputs + columns[None, :]
        tl.store(places, product.to(output.dtype.element_ty), mask=inside[:, None])
