"""The kernel of `lazuli.attention.triton_ragged`, in the Triton language.

A program computes one block of queries of one head. In a bucket for many sequences most programs would find nothing to
do: it holds few long ones as well. To start one for each block that there might have been would take longer than to
compute those that there are, so there are only as many programs as run at a time, and each takes one block after the
other.
"""

import triton
import triton.language as tl

from lazuli.triton_kernels.early import let_next_start, wait_for_previous
from lazuli.triton_kernels.layout import find_block, used_blocks

_LOG2E = tl.constexpr(1.4426950408889634)
# For the largest score before there is any: a block may hide all its keys from a row, and -inf - -inf is no number.
_LOW = tl.constexpr(-1e30)


@triton.jit
def _attend_blocks(
    q,
    queries,
    inside_queries,
    accumulated,
    largest,
    total,
    keys,
    values,
    bias,
    token,
    first,
    last,
    length,
    key_stride,
    value_stride,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    REACH: tl.constexpr,
    MASKED: tl.constexpr,
    LATE_Q: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Online softmax over the keys from `first` to `last`, a block at a time."""
    row = tl.arange(0, BLOCK_N)
    columns = tl.arange(0, HEAD_DIM)
    key_places = row[:, None] * key_stride + columns[None, :]
    value_places = row[:, None] * value_stride + columns[None, :]
    for begin in tl.range(first, last, BLOCK_N, num_stages=STAGES):
        # The second half of the mask always holds; it keeps the compiler from moving the load out of the loop.
        block_q = tl.load(queries, mask=inside_queries & (begin < last), other=0.0) if LATE_Q else q
        if MASKED:
            # Values too: a number that is not finite beyond the sequence would survive a weight of zero.
            inside = (begin + row < length)[:, None]
            k = tl.load(keys + begin * key_stride + key_places, mask=inside, other=0.0)
        else:
            k = tl.load(keys + begin * key_stride + key_places)
        scores = tl.dot(block_q, tl.trans(k))
        if REACH is not None:
            distance = tl.minimum(tl.maximum((begin + row)[None, :] - token[:, None], -REACH), REACH)
            scores += tl.load(bias + distance) * (_LOG2E / scale)
        if MASKED:
            seen = (begin + row < length)[None, :]
            if CAUSAL:
                seen = seen & ((begin + row)[None, :] <= token[:, None])
            if WINDOW is not None:
                seen = seen & (tl.abs((begin + row)[None, :] - token[:, None]) <= WINDOW)
            scores = tl.where(seen, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - new_largest[:, None])
        decay = tl.exp2(largest - new_largest)
        total = total * decay + tl.sum(weights, axis=1)
        accumulated = accumulated * decay[:, None]
        if MASKED:
            v = tl.load(values + begin * value_stride + value_places, mask=inside, other=0.0)
        else:
            v = tl.load(values + begin * value_stride + value_places)
        accumulated = tl.dot(weights.to(v.dtype), v, accumulated)
        largest = new_largest
    return accumulated, largest, total


@triton.jit
def _attend(
    query,
    key,
    value,
    output,
    bias,
    start,
    length,
    first_token,
    head,
    query_stride,
    key_stride,
    value_stride,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    REACH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASK_ALL: tl.constexpr,
    LATE_Q: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One block of queries of one head, of the sequence that begins at token `start`."""
    token = first_token + tl.arange(0, BLOCK_M)
    inside = (token < length)[:, None]
    columns = tl.arange(0, HEAD_DIM)[None, :]
    queries = query + start * query_stride + head * HEAD_DIM + token[:, None] * query_stride + columns
    keys = key + start * key_stride + head // GROUP * HEAD_DIM
    values = value + start * value_stride + head // GROUP * HEAD_DIM
    q = queries  # read in the loop
    if not LATE_Q:
        q = tl.load(queries, mask=inside, other=0.0)
    result = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    largest = tl.full((BLOCK_M,), float("-inf") if WINDOW is None else _LOW, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    last = tl.minimum(length, first_token + BLOCK_M) if CAUSAL else length
    full = 0
    if REACH is not None:
        bias += head * (2 * REACH + 1) + REACH
    if WINDOW is not None:
        # Blocks that no row of the block sees are left out. Of the others, few are seen by every row.
        full = tl.maximum(first_token - WINDOW, 0) // BLOCK_N * BLOCK_N
        last = tl.minimum(last, first_token + BLOCK_M + WINDOW)
    elif not MASK_ALL:
        # Keys that every row of the block sees, whole blocks of them.
        full = (first_token + 1 if CAUSAL else length) // BLOCK_N * BLOCK_N
        result, largest, total = _attend_blocks(
            q, queries, inside, result, largest, total, keys, values, bias, token, 0, full, length,
            key_stride, value_stride, scale, HEAD_DIM, BLOCK_N, CAUSAL, WINDOW, REACH, False, LATE_Q, STAGES,
        )  # fmt: skip
    result, largest, total = _attend_blocks(
        q, queries, inside, result, largest, total, keys, values, bias, token, full, last, length,
        key_stride, value_stride, scale, HEAD_DIM, BLOCK_N, CAUSAL, WINDOW, REACH, True, LATE_Q, STAGES,
    )  # fmt: skip
    result *= (1 / total)[:, None]
    outputs = output + start * (HEADS * HEAD_DIM) + head * HEAD_DIM + token[:, None] * (HEADS * HEAD_DIM) + columns
    tl.store(outputs, result.to(output.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_sequences"])
def ragged_attention_kernel(
    query,
    key,
    value,
    output,
    bias,
    cu_seqlens,
    num_sequences,
    query_stride,
    key_stride,
    value_stride,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    REACH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASK_ALL: tl.constexpr,
    LATE_Q: tl.constexpr,
    STAGES: tl.constexpr,
    SEARCH: tl.constexpr,
    LOOP: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Attend.

    Args:
        query: [T, HEADS, HEAD_DIM] with `query_stride` numbers a token; `key` and `value` have HEADS / GROUP heads.
        key: See `query`.
        value: See `query`.
        output: [T, HEADS, HEAD_DIM], contiguous.
        bias: [HEADS, 2 REACH + 1] float32; None if REACH is.
        cu_seqlens: [num_sequences + 1]; read before the kernel before has ended.
        num_sequences: Sequences, empty ones too.
        query_stride: Numbers from token to token.
        key_stride: The same.
        value_stride: The same.
        scale: Of the scores, times log2(e).
        HEADS: Query heads.
        GROUP: Query heads a key head.
        HEAD_DIM: A power of two.
        CAUSAL: Whether later keys are hidden.
        WINDOW: Keys farther from the query than that are hidden; None if none are.
        REACH: How far two tokens may be apart until the bias stays the same; None if there is no bias.
        BLOCK_M: Queries of a block.
        BLOCK_N: Keys a step.
        MASK_ALL: One loop that masks every block, instead of one without and one with masks: less to start up.
        LATE_Q: Read the queries again with each block of keys: for loops of one or two rounds, where waiting for them
            before the loop would cost more.
        STAGES: Blocks of keys on their way at a time.
        SEARCH: See `layout`.
        LOOP: Whether a program takes one block after the other; else there is a program for each.
        EARLY: See `early`.
    """
    # The last blocks come first: sequences come by length, and with a causal mask later queries see more keys.
    if LOOP:
        num_blocks = used_blocks(cu_seqlens, num_sequences, BLOCK_M, SEARCH)
        # Whatever the compiler moved out of this loop would take registers from those inside.
        for number in tl.range(tl.program_id(0), num_blocks * HEADS, tl.num_programs(0), disable_licm=True):
            block = num_blocks - 1 - number // HEADS
            start, length, block = find_block(cu_seqlens, num_sequences, block, BLOCK_M, SEARCH)
            wait_for_previous(EARLY)
            let_next_start(EARLY)
            if block * BLOCK_M < length:
                _attend(
                    query, key, value, output, bias, start.to(tl.int64), length, block * BLOCK_M, number % HEADS,
                    query_stride, key_stride, value_stride, scale,
                    HEADS, GROUP, HEAD_DIM, CAUSAL, WINDOW, REACH, BLOCK_M, BLOCK_N, MASK_ALL, LATE_Q, STAGES,
                )  # fmt: skip
        wait_for_previous(EARLY)  # without a block, too
    else:
        block = (tl.num_programs(0) - 1 - tl.program_id(0)) // HEADS
        start, length, block = find_block(cu_seqlens, num_sequences, block, BLOCK_M, SEARCH)
        wait_for_previous(EARLY)
        let_next_start(EARLY)
        if block * BLOCK_M < length:
            _attend(
                query, key, value, output, bias, start.to(tl.int64), length, block * BLOCK_M, tl.program_id(0) % HEADS,
                query_stride, key_stride, value_stride, scale,
                HEADS, GROUP, HEAD_DIM, CAUSAL, WINDOW, REACH, BLOCK_M, BLOCK_N, MASK_ALL, LATE_Q, STAGES,
            )  # fmt: skip
