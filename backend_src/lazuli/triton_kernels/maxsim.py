"""The GPU version of `lazuli.scoring.maxsim`, in the Triton language.

A program takes some tokens of a pair's query and goes through the document; what it finds is summed by torch over the
programs of a pair. No matrix of all products is ever in memory. Products are exact in float32, as in the reference.
"""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from lazuli.to_device import to_device

_QUERY_TOKENS = 32
_DOCUMENT_TOKENS = 64


@triton.jit
def _maxsim_kernel(
    vectors,
    starts,
    output,
    size,
    num_blocks,
    QUERY_TOKENS: tl.constexpr,
    DOCUMENT_TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Score a block of a query's tokens.

    Args:
        vectors: [T, size], contiguous.
        starts: [4, P] int32: begin and end of each pair's query, begin and end of its document.
        output: [P, num_blocks] float32.
        size: Numbers of a vector.
        num_blocks: Blocks of the longest query.
        QUERY_TOKENS: Tokens of a block.
        DOCUMENT_TOKENS: Tokens of the document at a time.
        BLOCK: Numbers of a vector at a time.
    """
    pair, block = tl.program_id(0), tl.program_id(1)
    num_pairs = tl.num_programs(0)
    query_begin, query_end = tl.load(starts + pair), tl.load(starts + num_pairs + pair)
    begin, end = tl.load(starts + 2 * num_pairs + pair), tl.load(starts + 3 * num_pairs + pair)
    token = query_begin + block * QUERY_TOKENS + tl.arange(0, QUERY_TOKENS)
    inside = token < query_end
    best = tl.full((QUERY_TOKENS,), float("-inf"), tl.float32)
    poison = tl.zeros((QUERY_TOKENS,), tl.float32)
    if query_begin + block * QUERY_TOKENS < query_end:
        queries = vectors + token.to(tl.int64)[:, None] * size
        for first in range(begin, end, DOCUMENT_TOKENS):
            other = first + tl.arange(0, DOCUMENT_TOKENS)
            there = other < end
            documents = vectors + other.to(tl.int64)[None, :] * size
            products = tl.zeros((QUERY_TOKENS, DOCUMENT_TOKENS), tl.float32)
            for column in range(0, size, BLOCK):
                columns = column + tl.arange(0, BLOCK)
                used = columns < size
                q = tl.load(queries + columns[None, :], mask=inside[:, None] & used[None, :], other=0.0)
                d = tl.load(documents + columns[:, None], mask=there[None, :] & used[:, None], other=0.0)
                products = tl.dot(q, d, products, input_precision="ieee")
            # A maximum may pass over NaN; a product with zero keeps it, and makes it of infinity.
            poison += tl.sum(products * 0.0, axis=1)
            best = tl.maximum(best, tl.max(tl.where(there[None, :], products, float("-inf")), axis=1))
    total = tl.sum(tl.where(inside, best + poison, 0.0), axis=0)
    tl.store(output + pair.to(tl.int64) * num_blocks + block, total)


def maxsim(vectors: torch.Tensor, cu_seqlens: np.ndarray, queries: np.ndarray, documents: np.ndarray) -> torch.Tensor:
    """See `lazuli.scoring.maxsim.maxsim`."""
    assert vectors.is_contiguous(), "rows are found by their number"
    edges = [cu_seqlens[queries], cu_seqlens[queries + 1], cu_seqlens[documents], cu_seqlens[documents + 1]]
    num_blocks = max(1, -(-int((edges[1] - edges[0]).max()) // _QUERY_TOKENS))
    starts = to_device(np.stack(edges).astype(np.int32), vectors.device)
    output = torch.empty((len(queries), num_blocks), dtype=torch.float32, device=vectors.device)
    size = vectors.shape[1]
    arguments: list[Any] = [vectors, starts, output, size, num_blocks]
    _maxsim_kernel[(len(queries), num_blocks)](
        *arguments,
        QUERY_TOKENS=_QUERY_TOKENS,
        DOCUMENT_TOKENS=_DOCUMENT_TOKENS,
        BLOCK=min(32, max(16, triton.next_power_of_2(size))),
        num_warps=4,
    )
    return output.sum(dim=1)
