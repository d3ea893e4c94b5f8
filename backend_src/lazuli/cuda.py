"""One forward pass on a GPU: queued, never waited for.

Takes a ragged batch, returns a result on its way. All work goes to one stream, in order: the copy of the inputs from
pinned memory, the kernels (launched one by one, or as one CUDA graph), the copy of the vectors. The inputs lie in one
static buffer, where graphs expect them; being on one stream, the next batch cannot overwrite them too early.
"""

import logging
import os
from dataclasses import dataclass

import numpy as np
import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.batch import RaggedBatch
from lazuli.encoder import Encoder, EncoderInputs
from lazuli.graph import Action, Bucket, BucketRule, GraphCache
from lazuli.lazy_tensor import CudaTensor, PinnedPool

_log = logging.getLogger(__name__)
_CORES_TO_SPIN = 8


@dataclass(frozen=True)
class CapturedGraph:
    """A graph with the tensor that it writes, and the inputs that it reads."""

    graph: torch.cuda.CUDAGraph
    output: torch.Tensor
    inputs: EncoderInputs


class CudaStepper:
    """Runs batches on one GPU. `step` is for one thread."""

    def __init__(
        self,
        encoder: Encoder,
        device: torch.device,
        rule: BucketRule,
        max_graphs: int,
        max_tokens: int,
        max_sequences: int,
    ) -> None:
        """Allocate the static buffers.

        Args:
            encoder: On `device`.
            device: The GPU.
            rule: Which batches share a graph.
            max_graphs: Most graphs kept; none if the encoder cannot be captured.
            max_tokens: Most tokens of any batch or bucket.
            max_sequences: Most sequences of any batch or bucket.
        """
        # Products that are split along K would add their parts in bfloat16, and only for some numbers of tokens: a text
        # alone and in a batch would differ by that.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        # A batch in flight has one thread waiting for it: with cores to spare it may spin.
        self._spin = len(os.sched_getaffinity(0)) >= _CORES_TO_SPIN
        self._encoder = encoder
        self._rule = rule
        self._graphs: GraphCache[CapturedGraph] = GraphCache(max_graphs if encoder.capturable else 0)
        self._stream = torch.cuda.Stream(device)
        self._graph_pool = torch.cuda.graph_pool_handle()
        num_inputs = _num_inputs(max_tokens, max_sequences)
        self._inputs = torch.zeros(num_inputs, dtype=torch.int32, device=device)
        self._staging_pool = PinnedPool(num_inputs * 4)
        self._result_pool = PinnedPool(max_sequences * encoder.shape.hidden_size * 4)
        torch.cuda.synchronize(device)  # the buffer was zeroed on another stream

    @property
    def graphs(self) -> GraphCache[CapturedGraph]:
        """The graph cache, for its counters."""
        return self._graphs

    @torch.inference_mode()
    def step(self, batch: RaggedBatch) -> CudaTensor:
        """Queue a batch; returns before the device is done."""
        bucket = self._rule.bucket(batch.num_tokens, batch.num_sequences, batch.max_seqlen)
        action = self._graphs.next_action(bucket)
        exact = Bucket(batch.num_tokens, batch.num_sequences, batch.max_seqlen)
        sizes = exact if bucket is None or action is Action.EAGER else bucket
        self._graphs.counters.padded_tokens += sizes.num_tokens - batch.num_tokens
        staging = self._staging_pool.take()
        with torch.cuda.stream(self._stream):
            try:
                inputs = self._upload(batch, sizes, staging)
                output = self._run(action, sizes, inputs)
                result = output[: batch.num_sequences]
                return CudaTensor(result, self._result_pool, staging, self._staging_pool, spin=self._spin)
            except Exception:
                self._stream.synchronize()  # the copy may still read the staging buffer
                self._staging_pool.give_back(staging)
                raise

    def _upload(self, batch: RaggedBatch, sizes: Bucket, staging: torch.Tensor) -> EncoderInputs:
        """Lay the batch out in pinned memory as it lies on the device, and queue one copy."""
        num_inputs = _num_inputs(sizes.num_tokens, sizes.num_sequences)
        host = staging.view(torch.int32)[:num_inputs]
        _fill(host.numpy(), batch, sizes)
        device_buffer = self._inputs[:num_inputs]
        device_buffer.copy_(host, non_blocking=True)
        return _views(device_buffer, batch.cu_seqlens, sizes)

    def _run(self, action: Action, sizes: Bucket, inputs: EncoderInputs) -> torch.Tensor:
        if action is Action.CAPTURE and not self._capture(sizes, inputs):
            action = Action.EAGER
        if action is Action.EAGER:
            self._graphs.counters.eager += 1
            return self._encoder.encode(inputs)
        captured = self._graphs.get(sizes)
        captured.graph.replay()
        self._graphs.counters.replayed += 1
        return captured.output

    def _capture(self, bucket: Bucket, inputs: EncoderInputs) -> bool:
        """Record the kernels of a bucket; nothing runs yet, and work in flight is not waited for."""
        graph = torch.cuda.CUDAGraph()
        # thread_local: what other threads do with the device meanwhile cannot break the capture.
        graph.capture_begin(pool=self._graph_pool, capture_error_mode="thread_local")
        try:
            try:
                output = self._encoder.encode(inputs)
            finally:
                graph.capture_end()  # raises as well if what failed has invalidated the capture
        except Exception:
            _log.exception("capture of %s failed; batches of this size run eagerly", bucket)
            self._graphs.bar(bucket)
            # torch still records to the pool of an invalidated capture, and refuses to begin another there.
            self._graph_pool = torch.cuda.graph_pool_handle()
            return False
        self._graphs.store(bucket, CapturedGraph(graph, output, inputs))
        return True


def _num_inputs(num_tokens: int, num_sequences: int) -> int:
    """int32 numbers of a batch: ids, positions, cu_seqlens, normalise flags."""
    return 2 * num_tokens + 2 * num_sequences + 1


def _fill(buffer: np.ndarray, batch: RaggedBatch, sizes: Bucket) -> None:
    """Write a batch into an int32 buffer, padded to `sizes`: id 0 for tokens, empty for sequences."""
    ids, positions, cu_seqlens, normalize = np.split(buffer, _offsets(sizes))
    ids[: batch.num_tokens] = batch.input_ids
    ids[batch.num_tokens :] = 0
    positions[: batch.num_tokens] = batch.position_ids
    positions[batch.num_tokens :] = 0
    cu_seqlens[: batch.num_sequences + 1] = batch.cu_seqlens
    cu_seqlens[batch.num_sequences + 1 :] = batch.num_tokens
    normalize[: batch.num_sequences] = batch.normalize
    normalize[batch.num_sequences :] = 0


def _views(buffer: torch.Tensor, cu_seqlens_cpu: np.ndarray, sizes: Bucket) -> EncoderInputs:
    """The parts of a device buffer that `_fill` laid out: views, since graphs keep their addresses."""
    ids, positions, cu_seqlens, normalize = torch.tensor_split(buffer, _offsets(sizes))
    attention = AttentionMetadata(cu_seqlens, cu_seqlens_cpu, sizes.max_seqlen)
    return EncoderInputs(ids, positions, attention, normalize)


def _offsets(sizes: Bucket) -> list[int]:
    tokens, sequences = sizes.num_tokens, sizes.num_sequences
    return [tokens, 2 * tokens, 2 * tokens + sequences + 1]
