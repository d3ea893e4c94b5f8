"""One attention kernel on one batch: checked against float32, then timed inside a CUDA graph.

Takes a backend and a case, returns raw samples. Knows nothing of files.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata, AttentionShape
from lazuli.buckets import Bucket, BucketTable

SHAPES = {
    "16/8×128": AttentionShape(16, 8, 128, causal=False, num_layers=28),
    "16/8×128 causal": AttentionShape(16, 8, 128, causal=True, num_layers=28),
    "16/16×64": AttentionShape(16, 16, 64, causal=False, num_layers=24),
    "12/12×32": AttentionShape(12, 12, 32, causal=False, num_layers=6),
    "32/8×128": AttentionShape(32, 8, 128, causal=False, num_layers=36),
}
LENGTHS = (16, 64, 128, 512, 2048, 4096, 8192)
BATCHES = (1, 5, 8, 25, 50)
MIXED = (17, 300, 45, 900, 64, 8)
MOST_TOKENS = 32768
# As the engine pads batches: kernels that start programs by the number of sequences or the longest one pay for that.
BUCKETS = BucketTable(max_tokens=MOST_TOKENS, max_sequences=1024, max_seqlen=max(LENGTHS))
REPLAYS = 10
PLANS = 10
# A graph holds calls for about that long on a GPU at a third of its speed, and at least two.
_GRAPH_S = 1e-3
_OPERATIONS_PER_S = 250e12
_MOST_CALLS = 20
_MOST_INPUTS = 4
_LEAST_CALL_S = 5e-6
_LARGEST_ERROR = 3e-2


@dataclass(frozen=True)
class Case:
    """One batch of one head shape."""

    shape_name: str
    lengths: tuple[int, ...]

    @property
    def shape(self) -> AttentionShape:
        """Of the heads."""
        return SHAPES[self.shape_name]

    @property
    def num_tokens(self) -> int:
        """Of the batch."""
        return sum(self.lengths)

    @property
    def bucket(self) -> Bucket:
        """What the engine pads it to."""
        bucket = BUCKETS.find(Bucket(self.num_tokens, len(self.lengths), max(self.lengths)))
        assert bucket is not None, "it holds every batch of so many tokens"
        return bucket

    @property
    def label(self) -> int | str:
        """The length, or what was mixed."""
        return self.lengths[0] if len(set(self.lengths)) == 1 else ",".join(map(str, self.lengths))

    @property
    def estimated_s(self) -> float:
        """Of a call."""
        products = 4 * self.shape.num_heads * self.shape.head_dim * sum(length**2 for length in self.lengths)
        return max(products / (2 if self.shape.causal else 1) / _OPERATIONS_PER_S, _LEAST_CALL_S)


def make_cases() -> list[Case]:
    """Every shape, length and batch that fits, and the mixed batch."""
    layouts = [(length,) * batch for length in LENGTHS for batch in BATCHES if length * batch <= MOST_TOKENS]
    return [Case(name, lengths) for name in SHAPES for lengths in [*layouts, MIXED]]


class Bench:
    """Measures one case on one backend."""

    def __init__(self, backend: AttentionBackend, case: Case) -> None:
        """Make inputs, as views of one packed tensor like those of the models."""
        self._backend = backend
        self._case = case
        shape, bucket = case.shape, case.bucket
        heads = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
        generator = torch.Generator("cuda").manual_seed(case.num_tokens)
        packed_shape = (_MOST_INPUTS, bucket.num_tokens, sum(heads), shape.head_dim)
        packed = torch.randn(packed_shape, generator=generator, device="cuda", dtype=torch.bfloat16)
        self._inputs = [part.split(heads, dim=1) for part in packed]
        cu_seqlens = np.full(bucket.num_sequences + 1, case.num_tokens, dtype=np.int32)
        cu_seqlens[: len(case.lengths) + 1] = np.cumsum([0, *case.lengths])
        on_device = torch.from_numpy(cu_seqlens).cuda()
        self._metadata = AttentionMetadata(on_device, cu_seqlens, bucket.max_seqlen, bucket.num_tokens)

    def largest_error(self) -> float:
        """The difference to float32, at most 3e-2 of a bfloat16 result of this size."""
        self._backend.plan(self._metadata)
        output = self._call(self._inputs[0])[: self._case.num_tokens].float()
        query, key, value = (part[: self._case.num_tokens] for part in self._inputs[0])
        error = float((output - reference(query, key, value, self._case)).abs().max())
        if not error <= _LARGEST_ERROR:
            raise ArithmeticError(f"differs from float32 by {error}")
        return error

    def time_plans(self) -> list[float]:
        """Milliseconds on the host, the device idle."""
        samples = []
        for _ in range(PLANS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            self._backend.plan(self._metadata)
            samples.append(1e3 * (time.perf_counter() - start))
        return samples

    def time_calls(self) -> list[float]:
        """Milliseconds of a call, from replays of a graph of several over rotating inputs."""
        calls = min(max(int(_GRAPH_S / self._case.estimated_s), 2), _MOST_CALLS)
        graph = self._capture(calls)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
        for _ in range(2):
            graph.replay()
        marks[0].record()
        for mark in marks[1:]:
            graph.replay()
            mark.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / calls for start, end in pairwise(marks)]

    def _capture(self, calls: int) -> torch.cuda.CUDAGraph:
        self._backend.plan(self._metadata)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Not `torch.cuda.graph`, which collects garbage and empties the cache each time.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for number in range(calls):
                self._call(self._inputs[number % _MOST_INPUTS])
        finally:
            graph.capture_end()
        return graph

    def _call(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        query, key, value = inputs
        return self._backend.forward(query, key, value, self._metadata, causal=self._case.shape.causal)


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, case: Case) -> torch.Tensor:
    """Float32 attention, one sequence at a time; equally long ones together."""
    group = case.shape.num_heads // case.shape.num_kv_heads
    wide = [query.float(), *(part.float().repeat_interleave(group, dim=1) for part in (key, value))]
    same = len(set(case.lengths)) == 1
    if same:
        parts = [[part.unflatten(0, (len(case.lengths), -1)) for part in wide]]
    else:
        parts = [list(sequence) for sequence in zip(*(part[None].split(case.lengths, 1) for part in wide), strict=True)]
    attended = [
        torch.nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=case.shape.causal
        )
        for query, key, value in parts
    ]
    return torch.cat([output.transpose(1, 2).flatten(0, 1) for output in attended])


def measure(backend: AttentionBackend, case: Case) -> dict[str, Any]:
    """All figures of a case."""
    bench = Bench(backend, case)
    error = bench.largest_error()
    planned = type(backend).plan is not AttentionBackend.plan
    plans = bench.time_plans() if planned else []
    calls = bench.time_calls() if backend.capturable else []
    return {"error": error, "plan_ms": plans, "call_ms": calls}


def raise_clocks() -> None:
    """Keep the GPU busy until it has left its idle clocks."""
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(200):
        square @ square
    torch.cuda.synchronize()
