"""One forward pass on a GPU: queued, never waited for.

Takes a ragged batch, returns a result on its way. All work goes to one stream, in order: the copy of the inputs from
pinned memory, the kernels (launched one by one, or as one CUDA graph), the copy of the vectors. The inputs lie in one
static buffer, where graphs expect them; being on one stream, the next batch cannot overwrite them too early.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from lazuli.batch import RaggedBatch
from lazuli.buckets import Bucket, dummy_lengths
from lazuli.device import keep_products_exact, may_spin
from lazuli.encoder import Encoder, EncoderInputs
from lazuli.graph import Action, GraphCache
from lazuli.input_buffer import InputBuffer
from lazuli.lazy_tensor import CudaTensor, PinnedPool
from lazuli.lazy_tensors import Computed, CudaTensors
from lazuli.outputs.finish import NORMALIZED
from lazuli.recorder import CapturedGraph, GraphRecorder

_log = logging.getLogger(__name__)
_PINNED_BUFFERS = 4
_TIMED_RUNS = 3
# A thread that wants the interpreter gets it after so long, in place of 5 ms.
_SWITCH_S = 1e-4


class CudaStepper:
    """Runs batches on one GPU. For one thread at a time, the one that holds the turn."""

    def __init__(
        self,
        encoder: Encoder,
        device: torch.device,
        graphs: GraphCache[CapturedGraph],
        max_tokens: int,
        max_sequences: int,
        turn: threading.Lock,
    ) -> None:
        """Allocate the static buffers.

        Args:
            encoder: On `device`.
            device: The GPU.
            graphs: Decides which batches run as graphs.
            max_tokens: Most tokens of any batch or bucket.
            max_sequences: Most sequences of any batch or bucket.
            turn: Held by whoever calls; a capture that gives way lets it go for a while.
        """
        keep_products_exact()
        self._spin = may_spin()
        self._encoder = encoder
        self._device = device
        self._turn = turn
        self.graphs = graphs
        self._recorder = GraphRecorder(encoder, device)
        self._stream = torch.cuda.Stream(device)
        self._input_buffer = InputBuffer(max_tokens, max_sequences, device)
        result_shape = (max_sequences, encoder.dimension)
        self._result_pool = PinnedPool(result_shape, torch.float32, pin_memory=device.type == "cuda")
        for pool in (self._input_buffer.staging_pool, self._result_pool):
            pool.reserve(_PINNED_BUFFERS)  # allocating one later would wait for the device
        torch.cuda.synchronize(device)  # the buffer was zeroed on another stream

    @torch.inference_mode()
    def step(self, batch: RaggedBatch) -> CudaTensor:
        """Queue a batch; returns before the device is done."""
        action, sizes = self.graphs.choose(Bucket(batch.num_tokens, batch.num_sequences, batch.max_seqlen))
        if action is Action.CAPTURE:
            action = Action.REPLAY if self.capture(sizes) else Action.EAGER
            self.graphs.count(action)
        return self._queue(batch, sizes, self._replay if action is Action.REPLAY else self._run)

    @torch.inference_mode()
    def run(self, batch: RaggedBatch, compute: Callable[[EncoderInputs], Computed]) -> CudaTensors:
        """Queue something else than vectors, without graphs; returns before the device is done.

        Args:
            batch: Of which the tensors are.
            compute: Launches the kernels, and does not synchronise.
        """
        sizes = Bucket(batch.num_tokens, batch.num_sequences, batch.max_seqlen)
        with self._uploaded(batch, sizes) as staging:
            computed = compute(self._plan(batch, sizes))
            pool = self._input_buffer.staging_pool
            return CudaTensors(computed, staging, pool, self._device, spin=self._spin)

    def capture(self, bucket: Bucket, *, give_way: bool = False) -> bool:
        """Make the graph of a bucket. Work in flight is not waited for, unless the capture fails.

        Args:
            bucket: Which one.
            give_way: Whether other threads may step meanwhile, and nothing is queued on the device. They must not
                capture: whoever calls sees to that.

        Returns:
            Whether there is a graph now.
        """
        if not self.graphs.fits(self._recorder.expected_pool_bytes(bucket.num_tokens)):
            _log.warning("a graph of %s would take more than graph_memory_mb; such batches run eagerly", bucket)
            self.graphs.bar(bucket)
            return False
        start = time.perf_counter()
        captured = self._try_capture(bucket, give_way)
        self.graphs.counters.capture_s += time.perf_counter() - start
        if captured is None:
            self.graphs.bar(bucket)
            return False
        self.graphs.store(bucket, captured, captured.own_bytes, self._recorder.pool_bytes)
        del captured
        if not len(self.graphs):
            self._give_memory_back()
        return bucket in self.graphs

    def limit(self, max_tokens: int) -> None:
        """Run larger batches eagerly from now on. Graphs so far are given up, with the memory of the larger ones."""
        self.graphs.limit(max_tokens)
        self._give_memory_back()

    def time_launch(self, bucket: Bucket) -> float:
        """Seconds until an eager run is queued, while the device has nothing else to do."""
        batch, times = dummy_batch(bucket), []
        for _ in range(1 + _TIMED_RUNS):  # the first one may allocate
            start = time.perf_counter()
            result = self._queue(batch, bucket, self._run)
            times.append(time.perf_counter() - start)
            result.result()
        return min(times[1:])

    def time_eager(self, bucket: Bucket) -> float:
        """Seconds of one of several eager runs queued behind each other."""
        return self._time(bucket, self._run)

    def time_replay(self, bucket: Bucket) -> float:
        """Seconds of a replay of a bucket that has a graph."""
        return self._time(bucket, self._replay)

    def run_dummy(self, bucket: Bucket) -> None:
        """Run a bucket eagerly and wait: kernels are compiled and loaded, and the memory it takes is measured."""
        self._queue(dummy_batch(bucket), bucket, self._measure).result()

    def _give_memory_back(self) -> None:
        """Once no graph is left. Waits for the device, which is rare enough."""
        self._recorder.renew_pool()
        torch.cuda.empty_cache()

    @torch.inference_mode()
    def _queue(
        self, batch: RaggedBatch, sizes: Bucket, run: Callable[[RaggedBatch, Bucket], torch.Tensor]
    ) -> CudaTensor:
        with self._uploaded(batch, sizes) as staging:
            result = run(batch, sizes)[: batch.num_sequences]
            return CudaTensor(result, self._result_pool, staging, self._input_buffer.staging_pool, spin=self._spin)

    @contextmanager
    def _uploaded(self, batch: RaggedBatch, sizes: Bucket) -> Iterator[torch.Tensor]:
        """The stream with a batch in the input buffer; gives the staging buffer, which goes back if it fails."""
        staging_pool = self._input_buffer.staging_pool
        staging = staging_pool.take()
        with torch.cuda.stream(self._stream):
            try:
                self._input_buffer.upload(batch, sizes, staging)
                yield staging
            except Exception:
                self._stream.synchronize()  # the copy may still read the staging buffer
                staging_pool.give_back(staging)
                raise

    def _run(self, batch: RaggedBatch, sizes: Bucket) -> torch.Tensor:
        return self._encoder.encode(self._plan(batch, sizes))

    def _measure(self, batch: RaggedBatch, sizes: Bucket) -> torch.Tensor:
        with self._recorder.measured(sizes.num_tokens):
            return self._encoder.encode(self._plan(batch, sizes))

    def _replay(self, batch: RaggedBatch, sizes: Bucket) -> torch.Tensor:
        if self._encoder.plans:
            self._plan(batch, sizes)
        captured = self.graphs.get(sizes)
        captured.graph.replay()
        return captured.output

    def _plan(self, batch: RaggedBatch, sizes: Bucket) -> EncoderInputs:
        """The tensors of a batch that was uploaded, with the host's part of its attention done."""
        inputs = self._input_buffer.inputs(batch.cu_seqlens, sizes)
        self._encoder.plan(inputs)
        return inputs

    @torch.inference_mode()
    def _try_capture(self, bucket: Bucket, give_way: bool) -> CapturedGraph | None:
        """Capture; if that fails, run the bucket eagerly, which loads whatever it needs, and try once more."""
        with torch.cuda.stream(self._stream):
            for attempt in (1, 2):
                try:
                    return self._capture_dummy(bucket, give_way)
                except Exception:
                    _log.warning("capture %d of %s failed", attempt, bucket, exc_info=True)
                if attempt == 1 and not self._try_dummy(bucket):
                    break
        return None

    def _capture_dummy(self, bucket: Bucket, give_way: bool) -> CapturedGraph:
        batch, pool = dummy_batch(bucket), self._input_buffer.staging_pool
        if give_way:
            inputs = self._plan(batch, bucket)
            with self._give_way():
                return self._recorder.capture(inputs, run=False)
        staging = pool.take()
        try:
            self._input_buffer.upload(batch, bucket, staging)
            return self._recorder.capture(self._plan(batch, bucket), run=True)
        finally:
            pool.give_back_after(staging)

    @contextmanager
    def _give_way(self) -> Iterator[None]:
        """Others may have the turn inside, and the interpreter as soon as they need it."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()
            sys.setswitchinterval(interval)

    def _try_dummy(self, bucket: Bucket) -> bool:
        try:
            self.run_dummy(bucket)
        except Exception:
            _log.warning("an eager run of %s failed too", bucket, exc_info=True)
            return False
        return True

    def _time(self, bucket: Bucket, run: Callable[[RaggedBatch, Bucket], torch.Tensor]) -> float:
        batch = dummy_batch(bucket)
        self._queue(batch, bucket, run).result()
        start = time.perf_counter()
        results = [self._queue(batch, bucket, run) for _ in range(_TIMED_RUNS)]
        for result in results:
            result.result()
        return (time.perf_counter() - start) / _TIMED_RUNS


def dummy_batch(bucket: Bucket) -> RaggedBatch:
    """A batch that fills a bucket's tokens."""
    rows = [np.zeros(length, dtype=np.int32) for length in dummy_lengths(bucket)]
    return RaggedBatch.pack(rows, [NORMALIZED] * len(rows))
