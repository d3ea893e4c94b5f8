"""One forward pass on the CPU.

Takes a ragged batch, returns a result that is already there: a CPU has no queue to put work into.
"""

from collections.abc import Callable

import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.batch import RaggedBatch
from lazuli.encoder import Encoder, EncoderInputs
from lazuli.lazy_tensor import HostTensor
from lazuli.lazy_tensors import Computed, HostTensors


class CpuStepper:
    """Runs batches in the calling thread."""

    def __init__(self, encoder: Encoder) -> None:
        """Wrap an encoder on the CPU."""
        self._encoder = encoder

    def step(self, batch: RaggedBatch) -> HostTensor:
        """Compute [B, D] float32."""
        return HostTensor(self._encoder.encode(host_inputs(batch)))

    @torch.inference_mode()
    def run(self, batch: RaggedBatch, compute: Callable[[EncoderInputs], Computed]) -> HostTensors:
        """Compute something else than vectors."""
        return HostTensors(compute(host_inputs(batch)))


def host_inputs(batch: RaggedBatch) -> EncoderInputs:
    """The tensors of a batch on the CPU, sharing memory with it."""
    attention = AttentionMetadata(torch.from_numpy(batch.cu_seqlens), batch.cu_seqlens, batch.max_seqlen)
    return EncoderInputs(
        input_ids=torch.from_numpy(batch.input_ids),
        position_ids=torch.from_numpy(batch.position_ids),
        attention=attention,
        finish=torch.from_numpy(batch.finish),
        cu_spans=None if batch.spans is None else torch.from_numpy(batch.spans.cu_spans),
    )
