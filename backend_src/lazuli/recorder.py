"""Captures the whole model as a CUDA graph, and knows what memory that takes.

Takes inputs at static addresses, returns graphs. All of them share one pool of memory: only one runs at a time, so each
may use what the others use, but for their outputs. It records on a stream of its own, where nothing ever runs: other
threads may use the device meanwhile. Knows nothing of when to capture.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from lazuli.encoder import Encoder, EncoderInputs

# More than this is not a graph's own: another process has allocated meanwhile.
_MOST_OWN_BYTES = 64 << 20
# Small batches also take memory that does not grow with them.
_TYPICAL_TOKENS = 1024
# What torch adds to a pool at once, for a tensor of 1 to 10 MB.
_SEGMENT_BYTES = 20 << 20


@dataclass(frozen=True)
class CapturedGraph:
    """A graph with the tensor that it writes, and the inputs that it reads.

    Attributes:
        graph: The graph.
        output: [B, D] float32, at the address that the graph writes to.
        inputs: Views of the static buffer.
        own_bytes: Device memory that it takes outside the pool.
    """

    graph: torch.cuda.CUDAGraph
    output: torch.Tensor
    inputs: EncoderInputs
    own_bytes: int


class GraphRecorder:
    """Captures, one graph at a time."""

    def __init__(self, encoder: Encoder, device: torch.device) -> None:
        """Start with an empty pool."""
        self._encoder = encoder
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._bytes_per_token = 0.0
        self._most_own_bytes = 0
        self._own_pool_bytes = 0
        self._registered = _register_graph(device)
        self.renew_pool()

    def capture(self, inputs: EncoderInputs, *, run: bool) -> CapturedGraph:
        """Record the kernels of a batch; work in flight is not waited for.

        Args:
            inputs: Of a batch that was planned.
            run: Whether to queue a first run on the current stream: it is slower than the others, and takes memory too.
                The batch must have been uploaded there. Without, that memory is taken to be as much as of others.

        Raises:
            Exception: Whatever the model raises, or torch, if the capture was invalidated.
        """
        before = self._outside_bytes()
        graph = torch.cuda.CUDAGraph()
        # relaxed: neither what other threads do with the device, nor a kernel that is loaded or a workspace that is
        # allocated at its first use, can break the capture.
        try:
            with torch.cuda.stream(self._stream):
                graph.capture_begin(pool=self._pool, capture_error_mode="relaxed")
                try:
                    output = self._encoder.encode(inputs)
                finally:
                    graph.capture_end()  # raises as well if what failed has invalidated the capture
        except Exception:
            # torch still records to the pool of an invalidated capture, and refuses to begin another there. The graphs
            # of the old pool keep it.
            self._kept_bytes += self._own_pool_bytes
            self._begin_pool()
            raise
        own = self._most_own_bytes
        if run:
            graph.replay()
            own = max(0, min(self._outside_bytes() - before, _MOST_OWN_BYTES))
            self._most_own_bytes = max(self._most_own_bytes, own)
        segments: list[dict[str, Any]] = torch.cuda.memory_snapshot(self._pool, include_traces=False)
        self._own_pool_bytes = sum(int(segment["total_size"]) for segment in segments)
        return CapturedGraph(graph, output, inputs, own_bytes=own)

    def _outside_bytes(self) -> int:
        """Memory in use on the device that torch has not taken; nobody else must take or free any meanwhile."""
        free, total = torch.cuda.mem_get_info(self._device)
        return int(total - free - torch.cuda.memory_reserved(self._device))

    @property
    def pool_bytes(self) -> int:
        """What all graphs share: the pool, and those before it that some may still keep."""
        return self._kept_bytes + self._own_pool_bytes

    def renew_pool(self) -> None:
        """Begin another pool, as must be done once no graph is left: torch has then given the old one up."""
        self._kept_bytes = 0
        self._begin_pool()

    def _begin_pool(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._own_pool_bytes = 0

    @contextmanager
    def measured(self, num_tokens: int) -> Iterator[None]:
        """Learn from an eager run inside what memory so many tokens take."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        yield
        taken = torch.cuda.max_memory_allocated(self._device) - before
        self._bytes_per_token = max(self._bytes_per_token, taken / max(num_tokens, _TYPICAL_TOKENS))

    def expected_pool_bytes(self, num_tokens: int) -> int:
        """What the pool would have at most after the capture of a batch of so many tokens."""
        growth = int(self._bytes_per_token * num_tokens) - self._own_pool_bytes
        return self.pool_bytes + (max(growth, _SEGMENT_BYTES) if growth > 0 else 0)


def _register_graph(device: torch.device) -> torch.cuda.CUDAGraph:
    """A graph that is never captured: while there is one, another takes no memory for torch's random numbers.

    The first graph of a process takes some. Where there is none left, that graph cannot be ended without the process
    (torch 2.11 throws in its destructor), so it is taken at the start.

    Raises:
        torch.OutOfMemoryError: If there is none left.
    """
    with torch.cuda.device(device):  # or else it is taken on another one
        torch.empty(1, device=device)  # raises, or leaves enough of what it took
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(torch.cuda.default_generators[device.index])
    return graph
