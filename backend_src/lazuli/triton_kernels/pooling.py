"""The GPU version of `lazuli.pooling`, in the Triton language: pooling, and what becomes of each vector.

A sequence is summed in chunks of 64 tokens, and then over its chunks, whatever shares its batch. Where sequences lie
and what becomes of vectors is read before the kernel before has ended: see `early`.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from lazuli.outputs.quantize import Quantizer
from lazuli.triton_kernels.early import launch_options, let_next_start, wait_for_previous
from lazuli.triton_kernels.finishing import block_of, finish_row
from lazuli.triton_kernels.layout import find_block, first_block, most_blocks, search_width

_CHUNK = tl.constexpr(64)
_ROWS = tl.constexpr(4)  # summed at a time


@triton.jit
def _sum_rows(source, first, count, size, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of `count` rows from `first` on, [BLOCK] float32."""
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, tl.minimum(count, LIMIT), _ROWS):
        row = start + tl.arange(0, _ROWS)[:, None]
        inside = (row < count) & (columns < size)[None, :]
        places = (first + row).to(tl.int64) * size + columns[None, :]
        total += tl.sum(tl.load(source + places, mask=inside, other=0.0).to(tl.float32), axis=0)
    return total


@triton.jit(do_not_specialize=["num_sequences"])
def _chunk_sums_kernel(
    hidden, cu_seqlens, sums, num_sequences, size, BLOCK: tl.constexpr, SEARCH: tl.constexpr, EARLY: tl.constexpr
):
    row = tl.program_id(0)
    begin, length, chunk = find_block(cu_seqlens, num_sequences, row, _CHUNK, SEARCH)
    wait_for_previous(EARLY)
    count = tl.minimum(length - chunk * _CHUNK, _CHUNK)
    if count > 0:
        total = _sum_rows(hidden, begin + chunk * _CHUNK, count, size, _CHUNK, BLOCK)
        let_next_start(EARLY)
        columns = tl.arange(0, BLOCK)
        tl.store(sums + row.to(tl.int64) * size + columns, total, mask=columns < size)


@triton.jit
def _finish_kernel(
    source,
    cu_seqlens,
    codes,
    ranges,
    output,
    size,
    MODE: tl.constexpr,
    QUANTIZER: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    mean: tl.constexpr = MODE == "chunks" or MODE == "mean"
    sequence = tl.program_id(0)
    code = tl.load(codes + sequence)
    if MODE == "rows":
        first, count = sequence, 1
    else:
        begin, end = tl.load(cu_seqlens + sequence), tl.load(cu_seqlens + sequence + 1)
        length = end - begin
        if MODE == "chunks":
            first, count = first_block(begin, sequence, _CHUNK), (length + _CHUNK - 1) // _CHUNK
        elif MODE == "mean":
            first, count = begin, length
        else:
            first, count = begin if MODE == "cls" else end - 1, tl.minimum(length, 1)
    wait_for_previous(EARLY)
    total = _sum_rows(source, first, count, size, 1 << 30 if mean else 1, BLOCK)
    if mean:
        total /= tl.maximum(length, 1)
    finish_row(total, code, ranges, output + sequence.to(tl.int64) * size, size, QUANTIZER, BLOCK)


def pool(
    hidden: torch.Tensor,
    cu_seqlens: torch.Tensor,
    mode: str,
    codes: torch.Tensor,
    max_seqlen: int,
    quantizer: Quantizer,
) -> torch.Tensor:
    """See `lazuli.pooling.pool_and_finish`."""
    assert hidden.is_contiguous(), "rows are found by their number"
    num_sequences, size = len(cu_seqlens) - 1, hidden.shape[1]
    source = hidden
    if mode == "mean" and max_seqlen > _CHUNK.value:
        num_chunks = most_blocks(len(hidden), num_sequences, _CHUNK.value)
        source = torch.empty((num_chunks, size), dtype=torch.float32, device=hidden.device)
        arguments: list[Any] = [hidden, cu_seqlens, source, num_sequences, size]
        options = {"BLOCK": block_of(size), "num_warps": 4} | launch_options(hidden.device)
        _chunk_sums_kernel[(num_chunks,)](*arguments, SEARCH=search_width(num_sequences), **options)
        mode = "chunks"
    return _finish(source, cu_seqlens, codes, num_sequences, mode, quantizer)


def finish(vectors: torch.Tensor, codes: torch.Tensor, quantizer: Quantizer) -> torch.Tensor:
    """See `lazuli.outputs.finish.finish`."""
    assert vectors.is_contiguous(), "rows are found by their number"
    return _finish(vectors, codes, codes, len(vectors), "rows", quantizer)


def _finish(
    source: torch.Tensor, cu_seqlens: torch.Tensor, codes: torch.Tensor, num_rows: int, mode: str, quantizer: Quantizer
) -> torch.Tensor:
    size = source.shape[1]
    output = torch.empty((num_rows, size), dtype=torch.float32, device=source.device)
    kind = "native" if quantizer.native else "ranges" if len(quantizer.ranges) else "none"
    ranges = quantizer.ranges if kind == "ranges" else output  # which nobody reads
    arguments: list[Any] = [source, cu_seqlens, codes, ranges, output, size]
    options = {"BLOCK": block_of(size), "num_warps": 4} | launch_options(source.device)
    _finish_kernel[(num_rows,)](*arguments, MODE=mode, QUANTIZER=kind, **options)
    return output
