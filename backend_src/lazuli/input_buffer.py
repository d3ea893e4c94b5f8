"""The inputs of one batch on a GPU: one static buffer, filled by one copy from pinned memory.

Takes a ragged batch and the sizes to pad it to, returns tensors that are views of the buffer, at addresses that the
sizes alone decide: graphs keep them. Knows nothing of graphs.
"""

from functools import lru_cache

import numpy as np
import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.batch import RaggedBatch
from lazuli.buckets import Bucket
from lazuli.encoder import EncoderInputs
from lazuli.lazy_tensor import PinnedPool

_REMEMBERED = 256


class InputBuffer:
    """Room for one batch on the device, and for those on their way in pinned memory."""

    def __init__(self, max_tokens: int, max_sequences: int, device: torch.device) -> None:
        """Allocate for the largest batch or bucket; pinned memory only on a GPU."""
        num_inputs = count_inputs(max_tokens, max_sequences)
        self._device_buffer = torch.zeros(num_inputs, dtype=torch.int32, device=device)
        # Making them anew takes 10 us, and buckets come again and again.
        self._views = lru_cache(_REMEMBERED)(self._make_views)
        self.staging_pool = PinnedPool((num_inputs,), torch.int32, pin_memory=device.type == "cuda")

    def upload(self, batch: RaggedBatch, sizes: Bucket, staging: torch.Tensor) -> None:
        """Lay the batch out in pinned memory as it lies on the device, and queue one copy.

        Args:
            batch: What to copy.
            sizes: What to pad it to.
            staging: Of `staging_pool`; may go back once the device has passed what was queued so far.
        """
        num_inputs = count_inputs(sizes.num_tokens, sizes.num_sequences)
        host = staging[:num_inputs]
        fill(host.numpy(), batch, sizes)
        self._device_buffer[:num_inputs].copy_(host, non_blocking=True)

    def inputs(self, cu_seqlens: np.ndarray, sizes: Bucket) -> EncoderInputs:
        """The tensors of a batch of these sizes, whatever they hold now.

        Args:
            cu_seqlens: [B + 1] int32 of the batch, on the host.
            sizes: Of the tensors.
        """
        ids, positions, device_cu_seqlens, finish = self._views(sizes)
        padded = np.full(sizes.num_sequences + 1, cu_seqlens[-1], dtype=np.int32)
        padded[: len(cu_seqlens)] = cu_seqlens
        attention = AttentionMetadata(device_cu_seqlens, padded, sizes.max_seqlen, sizes.num_tokens)
        return EncoderInputs(ids, positions, attention, finish)

    def _make_views(self, sizes: Bucket) -> tuple[torch.Tensor, ...]:
        buffer = self._device_buffer[: count_inputs(sizes.num_tokens, sizes.num_sequences)]
        return tuple(buffer[part] for part in _parts(sizes))


def count_inputs(num_tokens: int, num_sequences: int) -> int:
    """int32 numbers of a batch: ids, positions, cu_seqlens, finish codes."""
    return 2 * aligned(num_tokens) + aligned(num_sequences + 1) + num_sequences


def fill(buffer: np.ndarray, batch: RaggedBatch, sizes: Bucket) -> None:
    """Write a batch into an int32 buffer, padded to `sizes`: id 0 for tokens, empty for sequences."""
    ids, positions, cu_seqlens, finish = (buffer[part] for part in _parts(sizes))
    tokens, sequences = batch.num_tokens, batch.num_sequences
    ids[:tokens] = batch.input_ids
    positions[:tokens] = batch.position_ids
    cu_seqlens[: sequences + 1] = batch.cu_seqlens
    finish[:sequences] = batch.finish
    if tokens < sizes.num_tokens:
        ids[tokens:] = 0
        positions[tokens:] = 0
    if sequences < sizes.num_sequences:
        cu_seqlens[sequences + 1 :] = tokens
        finish[sequences:] = 0


@lru_cache(_REMEMBERED)
def _parts(sizes: Bucket) -> tuple[slice, slice, slice, slice]:
    """Where ids, positions, cu_seqlens and finish codes lie."""
    begin, parts = 0, []
    for length in (sizes.num_tokens, sizes.num_tokens, sizes.num_sequences + 1, sizes.num_sequences):
        parts.append(slice(begin, begin + length))
        begin += aligned(length)
    ids, positions, cu_seqlens, finish = parts
    return ids, positions, cu_seqlens, finish


def aligned(length: int) -> int:
    """Up to 16 bytes: compilers of kernels make another one for pointers that are not aligned so."""
    return -(-length // 4) * 4
