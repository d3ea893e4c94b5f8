"""The GPU version of `lazuli.pooling`, in the Triton language: pooling and scaling to unit length.

A sequence is summed in chunks of 64 tokens, and then over its chunks, whatever shares its batch.
"""

from typing import Any

import torch
import triton
import triton.language as tl

_CHUNK = tl.constexpr(64)
_ROWS = tl.constexpr(4)  # summed at a time
_SMALLEST_NORM = tl.constexpr(1e-12)  # as in torch.nn.functional.normalize


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


@triton.jit
def _chunk_sums_kernel(hidden, cu_seqlens, sums, size, BLOCK: tl.constexpr):
    sequence, chunk = tl.program_id(0), tl.program_id(1)
    begin = tl.load(cu_seqlens + sequence)
    first = begin + chunk * _CHUNK
    count = tl.minimum(tl.load(cu_seqlens + sequence + 1) - first, _CHUNK)
    if count > 0:
        total = _sum_rows(hidden, first, count, size, _CHUNK, BLOCK)
        columns = tl.arange(0, BLOCK)
        # Rows of their own for each sequence: it has no more chunks than the next one begins later.
        row = (begin // _CHUNK + sequence + chunk).to(tl.int64)
        tl.store(sums + row * size + columns, total, mask=columns < size)


@triton.jit
def _finish_kernel(source, cu_seqlens, chosen, output, size, MODE: tl.constexpr, BLOCK: tl.constexpr):
    sequence = tl.program_id(0)
    if MODE == "rows":
        total = _sum_rows(source, sequence, 1, size, 1, BLOCK)
    else:
        begin, end = tl.load(cu_seqlens + sequence), tl.load(cu_seqlens + sequence + 1)
        length = end - begin
        if MODE == "chunks":
            first = begin // _CHUNK + sequence
            total = _sum_rows(source, first, (length + _CHUNK - 1) // _CHUNK, size, 1 << 30, BLOCK)
            total /= tl.maximum(length, 1)
        elif MODE == "mean":
            total = _sum_rows(source, begin, length, size, 1 << 30, BLOCK) / tl.maximum(length, 1)
        else:
            row = begin if MODE == "cls" else end - 1
            total = _sum_rows(source, row, tl.minimum(length, 1), size, 1, BLOCK)
    norm = tl.sqrt(tl.sum(total * total, axis=0))
    scale = tl.where(tl.load(chosen + sequence) != 0, 1.0 / tl.maximum(norm, _SMALLEST_NORM), 1.0)
    columns = tl.arange(0, BLOCK)
    tl.store(output + sequence.to(tl.int64) * size + columns, total * scale, mask=columns < size)


def pool(
    hidden: torch.Tensor, cu_seqlens: torch.Tensor, mode: str, chosen: torch.Tensor, max_seqlen: int
) -> torch.Tensor:
    """See `lazuli.pooling.pool_normalized`."""
    assert hidden.is_contiguous(), "rows are found by their number"
    num_sequences, size = len(cu_seqlens) - 1, hidden.shape[1]
    output = torch.empty((num_sequences, size), dtype=torch.float32, device=hidden.device)
    options: dict[str, Any] = {"BLOCK": triton.next_power_of_2(size), "num_warps": 4}
    source = hidden
    if mode == "mean" and max_seqlen > _CHUNK.value:
        num_rows = len(hidden) // _CHUNK.value + num_sequences + 1
        source = torch.empty((num_rows, size), dtype=torch.float32, device=hidden.device)
        grid = (num_sequences, triton.cdiv(max_seqlen, _CHUNK.value))
        arguments: list[Any] = [hidden, cu_seqlens, source, size]
        _chunk_sums_kernel[grid](*arguments, **options)
        mode = "chunks"
    arguments = [source, cu_seqlens, chosen, output, size]
    _finish_kernel[(num_sequences,)](*arguments, MODE=mode, **options)
    return output


def normalize(vectors: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """See `lazuli.pooling.normalize`."""
    assert vectors.is_contiguous(), "rows are found by their number"
    output = torch.empty(vectors.shape, dtype=torch.float32, device=vectors.device)
    num_rows, size = vectors.shape
    arguments: list[Any] = [vectors, chosen, chosen, output, size]
    _finish_kernel[(num_rows,)](*arguments, MODE="rows", BLOCK=triton.next_power_of_2(size), num_warps=4)
    return output
