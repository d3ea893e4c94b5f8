"""The kernel of `lazuli.attention.triton_ragged`, in the Triton language.

One program computes one block of queries of one head, or of all query heads that share a key head. Programs are
numbered over all sequences without a plan: sequence s owns the blocks from (cu_seqlens[s] + s (TOKENS - 1)) // TOKENS
on, which leaves each at least as many as it needs, so that hardly a program finds nothing to do.
"""

import triton
import triton.language as tl


@triton.jit
def _find_block(cu_seqlens, num_sequences, block, TOKENS: tl.constexpr, SEARCH: tl.constexpr):
    """The first token, the length and the number of the block within its sequence."""
    sequence = 0
    if SEARCH > 1:
        for first in range(0, num_sequences, SEARCH):
            index = first + tl.arange(0, SEARCH)
            starts = tl.load(cu_seqlens + index, mask=index < num_sequences, other=0)
            begins = (starts + index * (TOKENS - 1)) // TOKENS
            sequence += tl.sum(((begins <= block) & (index < num_sequences)).to(tl.int32), axis=0)
        sequence -= 1
    start = tl.load(cu_seqlens + sequence)
    end = tl.load(cu_seqlens + sequence + 1)
    return start, end - start, block - (start + sequence * (TOKENS - 1)) // TOKENS


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
        if MASKED:
            seen = (begin + row < length)[None, :]
            if CAUSAL:
                seen = seen & ((begin + row)[None, :] <= token[:, None])
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


@triton.jit(do_not_specialize=["num_sequences"])
def ragged_attention_kernel(
    query,
    key,
    value,
    output,
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PACK: tl.constexpr,
    MASK_ALL: tl.constexpr,
    LATE_Q: tl.constexpr,
    STAGES: tl.constexpr,
    SEARCH: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attend.

    Args:
        query: [T, HEADS, HEAD_DIM] with `query_stride` numbers a token; `key` and `value` have HEADS / GROUP heads.
        key: See `query`.
        value: See `query`.
        output: [T, HEADS, HEAD_DIM], contiguous.
        cu_seqlens: [num_sequences + 1].
        num_sequences: Sequences, empty ones too.
        query_stride: Numbers from token to token.
        key_stride: The same.
        value_stride: The same.
        scale: Of the scores, times log2(e).
        HEADS: Query heads.
        GROUP: Query heads a key head.
        HEAD_DIM: A power of two.
        CAUSAL: Whether later keys are hidden.
        BLOCK_M: Rows of queries a program.
        BLOCK_N: Keys a step.
        PACK: Query heads a program: 1 or GROUP; BLOCK_M // PACK tokens each.
        MASK_ALL: One loop that masks every block, instead of one without and one with masks: less to start up.
        LATE_Q: Read the queries again with each block of keys: for loops of one or two rounds, where waiting for them
            before the loop would cost more.
        STAGES: Blocks of keys on their way at a time.
        SEARCH: 1 if there is one sequence, else the starts that are compared at a time.
        PDL: Whether it is launched while the kernel before it still runs. `cu_seqlens` is read before that has ended.
    """
    tokens: tl.constexpr = BLOCK_M // PACK
    program = tl.program_id(0)
    first_head = program % (HEADS // PACK) * PACK
    # The last blocks come first: with a causal mask they take the longest.
    block = (tl.num_programs(0) - 1 - program) // (HEADS // PACK)
    start, length, block = _find_block(cu_seqlens, num_sequences, block, tokens, SEARCH)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    first_token = block * tokens
    if first_token >= length:
        return
    row = tl.arange(0, BLOCK_M)
    token = first_token + row // PACK
    head = first_head + row % PACK
    inside = (token < length) & (row < tokens * PACK)
    columns = tl.arange(0, HEAD_DIM)[None, :]
    start = start.to(tl.int64)
    queries = query + start * query_stride + (token * query_stride + head * HEAD_DIM)[:, None] + columns
    keys = key + start * key_stride + first_head // GROUP * HEAD_DIM
    values = value + start * value_stride + first_head // GROUP * HEAD_DIM
    q = queries  # read in the loop
    if not LATE_Q:
        q = tl.load(queries, mask=inside[:, None], other=0.0)
    result = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    last = tl.minimum(length, first_token + tokens) if CAUSAL else length
    full = 0
    if not MASK_ALL:
        # Keys that every row of the block sees, whole blocks of them.
        full = (first_token + 1 if CAUSAL else length) // BLOCK_N * BLOCK_N
        result, largest, total = _attend_blocks(
            q, queries, inside[:, None], result, largest, total, keys, values, token, 0, full, length,
            key_stride, value_stride, scale, HEAD_DIM, BLOCK_N, CAUSAL, False, LATE_Q, STAGES,
        )  # fmt: skip
    result, largest, total = _attend_blocks(
        q, queries, inside[:, None], result, largest, total, keys, values, token, full, last, length,
        key_stride, value_stride, scale, HEAD_DIM, BLOCK_N, CAUSAL, True, LATE_Q, STAGES,
    )  # fmt: skip
    result *= (1 / total)[:, None]
    outputs = output + start * (HEADS * HEAD_DIM) + (token * (HEADS * HEAD_DIM) + head * HEAD_DIM)[:, None] + columns
    tl.store(outputs, result.to(output.dtype.element_ty), mask=inside[:, None])
