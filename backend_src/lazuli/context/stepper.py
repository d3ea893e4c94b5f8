"""One forward pass whose vectors are made of spans of its sequences, as those of chunks in their documents are.

Takes a ragged batch, returns a result that on a GPU may be on its way. Every pass runs eagerly, in memory of its own:
documents are long, and graphs save time on short batches only.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.batch import RaggedBatch
from lazuli.cpu import host_inputs
from lazuli.device import keep_products_exact, may_spin
from lazuli.encoder import Encoder, EncoderInputs
from lazuli.input_buffer import aligned
from lazuli.lazy_tensor import CudaTensor, HostTensor, LazyTensor, PinnedPool

_SMALLEST_POOL = 256


class SpanTensor(LazyTensor):
    """The vectors of spans, to be had by sequence."""

    def __init__(self, vectors: LazyTensor, span_counts: np.ndarray) -> None:
        """Wrap a result.

        Args:
            vectors: [P, D], those of each sequence side by side.
            span_counts: [B], spans of each sequence; together P.
        """
        self._vectors = vectors
        self._counts = span_counts

    def is_ready(self) -> bool:
        """Whether `result()` would not block."""
        return self._vectors.is_ready()

    def result(self) -> np.ndarray:
        """Wait, and return [B] objects: for each sequence the vectors of its spans, [P, D] float32."""
        vectors = self._vectors.result()
        result = np.empty(len(self._counts), dtype=np.object_)
        for place, piece in enumerate(np.split(vectors, np.cumsum(self._counts)[:-1])):
            result[place] = piece
        return result


class SpanStepper:
    """Runs batches on one device. For one thread at a time."""

    def __init__(self, encoder: Encoder, device: torch.device) -> None:
        """Wrap an encoder on `device`."""
        self._encoder = encoder
        self._device = device
        if device.type == "cuda":
            keep_products_exact()
            self._stream = torch.cuda.Stream(device)
        self._spin = may_spin()
        self._staging_pools: dict[int, PinnedPool] = _Pools(lambda size: PinnedPool((size,), torch.int32))
        width = encoder.dimension
        self._result_pools: dict[int, PinnedPool] = _Pools(lambda rows: PinnedPool((rows, width), torch.float32))

    def step(self, batch: RaggedBatch) -> LazyTensor:
        """Queue a batch.

        Returns:
            [B] objects, as `SpanTensor` has them; [B, D] float32 for a batch without spans.
        """
        vectors: LazyTensor
        if self._device.type == "cpu":
            vectors = HostTensor(self._encoder.encode(host_inputs(batch)))
        else:
            vectors = self._queue(batch)
        return vectors if batch.spans is None else SpanTensor(vectors, batch.spans.counts)

    @torch.inference_mode()
    def _queue(self, batch: RaggedBatch) -> CudaTensor:
        whole, places = lay_out(batch)
        staging_pool = self._staging_pools[_size_class(len(whole))]
        staging = staging_pool.take()
        with torch.cuda.stream(self._stream):
            try:
                host = staging[: len(whole)]
                host.numpy()[:] = whole
                device = host.to(self._device, non_blocking=True)
                inputs = device_inputs(batch, [device[place] for place in places])
                self._encoder.plan(inputs)
                vectors = self._encoder.encode(inputs)
                pool = self._result_pools[_size_class(len(vectors))]
                return CudaTensor(vectors, pool, staging, staging_pool, spin=self._spin)
            except Exception:
                self._stream.synchronize()  # the copy may still read the staging buffer
                staging_pool.give_back(staging)
                raise


class _Pools(dict[int, PinnedPool]):
    """A pool of pinned buffers for each size."""

    def __init__(self, make: Callable[[int], PinnedPool]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, size: int) -> PinnedPool:
        self[size] = self._make(size)
        return self[size]


def lay_out(batch: RaggedBatch) -> tuple[np.ndarray, list[slice]]:
    """All that the device needs of a batch, as one int32 array, and where its parts lie.

    Returns:
        The array, and the places of ids, positions, cu_seqlens, finish codes and, if there are spans, cu_spans.
    """
    parts = [batch.input_ids, batch.position_ids, batch.cu_seqlens, batch.finish]
    parts += [] if batch.spans is None else [batch.spans.cu_spans]
    begins = [0, *np.cumsum([aligned(len(part)) for part in parts]).tolist()]
    places = [slice(begin, begin + len(part)) for begin, part in zip(begins, parts, strict=False)]
    whole = np.zeros(begins[-1], dtype=np.int32)
    for place, part in zip(places, parts, strict=True):
        whole[place] = part
    return whole, places


def device_inputs(batch: RaggedBatch, parts: Sequence[torch.Tensor]) -> EncoderInputs:
    """The tensors of a batch out of the parts that `lay_out` made, on the device."""
    ids, positions, cu_seqlens, finish, *cu_spans = parts
    attention = AttentionMetadata(cu_seqlens, batch.cu_seqlens, batch.max_seqlen)
    return EncoderInputs(ids, positions, attention, finish, cu_spans=cu_spans[0] if cu_spans else None)


def _size_class(length: int) -> int:
    """A power of two, so that there are few sizes of buffers."""
    return max(_SMALLEST_POOL, 1 << (length - 1).bit_length())
