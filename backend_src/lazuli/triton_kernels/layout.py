"""Which sequence a program works on, where programs are numbered over all sequences without a plan.

With sequences cut into blocks of TOKENS, sequence s owns the blocks from (cu_seqlens[s] + s (TOKENS - 1)) // TOKENS on,
up to those of the next. That leaves each at least as many as it needs, and hardly a block without tokens. A batch of
T tokens in S sequences has at most `most_blocks`; those that it uses are the ones before `used_blocks`.
"""

import triton
import triton.language as tl


def most_blocks(num_tokens: int, num_sequences: int, tokens: int) -> int:
    """Blocks of so many tokens, whatever the lengths are."""
    return (num_tokens + num_sequences * (tokens - 1)) // tokens


def search_width(num_sequences: int) -> int:
    """SEARCH for a layout, starts that are compared at a time: few values, as each means another kernel to compile."""
    return next((width for width in (1, 32, 256) if num_sequences <= width), 1024)


@triton.jit
def first_block(start, sequence, TOKENS: tl.constexpr):
    """The first block of the sequence that begins at token `start`."""
    return (start + sequence * (TOKENS - 1)) // TOKENS


@triton.jit
def _count_below(cu_seqlens, num_sequences, slope, limit, SEARCH: tl.constexpr):
    """How many of the sequences have cu_seqlens[s] + s * slope below the limit."""
    count = 0
    for first in range(0, num_sequences, SEARCH):
        index = first + tl.arange(0, SEARCH)
        inside = index < num_sequences
        starts = tl.load(cu_seqlens + index, mask=inside, other=0)
        count += tl.sum((inside & (starts + index * slope < limit)).to(tl.int32), axis=0)
    return count


@triton.jit
def used_blocks(cu_seqlens, num_sequences, TOKENS: tl.constexpr, SEARCH: tl.constexpr):
    """The number of the first block that no sequence needs: those behind the last one with tokens are empty."""
    total = tl.load(cu_seqlens + num_sequences)
    count = 1
    if SEARCH > 1:
        count = _count_below(cu_seqlens, num_sequences, 0, total, SEARCH)
    return first_block(total, count, TOKENS)


@triton.jit
def find_block(cu_seqlens, num_sequences, block, TOKENS: tl.constexpr, SEARCH: tl.constexpr):
    """The first token of its sequence, the sequence's length, and the number of the block within it."""
    sequence = 0
    if SEARCH > 1:
        sequence = _count_below(cu_seqlens, num_sequences, TOKENS - 1, (block + 1) * TOKENS, SEARCH) - 1
    start = tl.load(cu_seqlens + sequence)
    end = tl.load(cu_seqlens + sequence + 1)
    return start, end - start, block - first_block(start, sequence, TOKENS)
