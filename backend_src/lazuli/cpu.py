"""One forward pass on the CPU.

Takes a ragged batch, returns a result that is already there: a CPU has no queue to put work into.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.batch import RaggedBatch
from lazuli.encoder import Encoder, EncoderInputs
from lazuli.lazy_tensor import HostTensor
from lazuli.lazy_tensors import Computed, HostTensors

Result = TypeVar("Result")


class CpuStepper:
    """Runs batches in the calling thread, until one fails; then in one of its own, a fresh one after each failure.

    oneDNN makes machine code for each new shape. Where it once found no memory for that, it refuses all that is new in
    the same thread for ever, however much memory there is by then. So a thread is not trusted after a failure.
    """

    def __init__(self, encoder: Encoder) -> None:
        """Wrap an encoder on the CPU."""
        self._encoder = encoder
        self._thread: ThreadPoolExecutor | None = None

    def step(self, batch: RaggedBatch) -> HostTensor:
        """Compute [B, D] float32."""
        return HostTensor(self._call(lambda: self._encoder.encode(host_inputs(batch))))

    def run(self, batch: RaggedBatch, compute: Callable[[EncoderInputs], Computed]) -> HostTensors:
        """Compute something else than vectors."""

        @torch.inference_mode()  # it holds for a thread
        def call() -> Computed:
            return compute(host_inputs(batch))

        return HostTensors(self._call(call))

    def _call(self, compute: Callable[[], Result]) -> Result:
        try:
            return compute() if self._thread is None else self._thread.submit(compute).result()
        except RuntimeError:
            if self._thread is not None:
                self._thread.shutdown(wait=False)
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lazuli-cpu")
            raise


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
