"""The metrics of an engine.

Takes what its recorder holds and looks at its queue and its graphs; returns samples. Called by one thread, now and
then.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lazuli.graph import GraphCounters
from lazuli.metrics.histogram import SECONDS, Histogram
from lazuli.metrics.recorder import Ended, EngineRecorder, Step, drain
from lazuli.metrics.requests import RequestCounts
from lazuli.metrics.samples import Sample, counter, gauge

_QUEUE_TOKENS = gauge("lazuli_queue_tokens", "Tokens that wait for a batch.")
_QUEUE_AGE = gauge("lazuli_queue_oldest_seconds", "How long the oldest of the texts that wait for a batch has waited.")
_BUSY = counter("lazuli_device_busy_seconds_total", "Time during which a batch was on the device or on its way.")
_PADDED = counter("lazuli_batch_padded_tokens_total", "Tokens computed beyond those of the batches.")
_GRAPH_BATCHES = counter(
    "lazuli_graph_batches_total",
    "Batches by how they ran: hit (own graph), stand_in (a larger graph), miss (no graph yet), above (too large for "
    "graphs).",
)
_CAPTURES = counter("lazuli_graph_captures_total", "CUDA graphs captured.")
_CAPTURE_S = counter("lazuli_graph_capture_seconds_total", "Time that captures took.")
_EVICTIONS = counter("lazuli_graph_evictions_total", "CUDA graphs thrown away to make room.")
_FAILURES = counter("lazuli_graph_failures_total", "Sizes of batches that could not be captured.")
_GRAPHS = gauge("lazuli_graphs", "CUDA graphs there are.")
_GRAPH_BYTES = gauge("lazuli_graph_bytes", "Device memory of CUDA graphs.")

_TOKEN_BOUNDS = tuple(float(1 << power) for power in range(4, 16))
_SEQUENCE_BOUNDS = tuple(float(1 << power) for power in range(11))


@dataclass(frozen=True, slots=True)
class EngineState:
    """What can be looked at, at any time.

    Attributes:
        queue_tokens: Tokens that wait.
        queue_oldest_s: How long the oldest of them have waited; 0 if there are none.
        graphs: What happened to batches and graphs.
    """

    queue_tokens: int
    queue_oldest_s: float
    graphs: GraphCounters


class EngineMetrics:
    """Counts what a recorder holds."""

    def __init__(self, recorder: EngineRecorder, look: Callable[[], EngineState]) -> None:
        """Count nothing yet.

        Args:
            recorder: Of an engine; drained here.
            look: Returns the state of that engine.
        """
        self._recorder = recorder
        self._look = look
        self._requests = RequestCounts(with_tokens=True)
        self._request_s = Histogram(
            "lazuli_request_seconds", "From a request's arrival at the engine to the last part of its answer.", SECONDS
        )
        self._step_s = Histogram("lazuli_step_seconds", "From queueing a batch to its result.", SECONDS)
        self._reply_s = Histogram("lazuli_reply_seconds", "From a batch's result to a request's answer.", SECONDS)
        self._tokens = Histogram("lazuli_batch_tokens", "Tokens of a batch, without padding.", _TOKEN_BOUNDS)
        self._sequences = Histogram("lazuli_batch_sequences", "Sequences of a batch.", _SEQUENCE_BOUNDS)
        self._busy_s = 0.0
        self._busy_until = float("-inf")

    def collect(self) -> list[Sample]:
        """Count what is new, and return all metrics."""
        for steps in drain(self._recorder.steps):
            self._count_steps([Step(*fields) for fields in steps])
        for requests in drain(self._recorder.requests):
            self._count_requests([Ended(*fields) for fields in requests])
        for seconds in drain(self._recorder.replies):
            self._reply_s.add(seconds)
        histograms = (self._request_s, self._step_s, self._reply_s, self._tokens, self._sequences)
        return [
            *self._requests.samples(),
            *(sample for histogram in histograms for sample in histogram.samples()),
            _BUSY.sample(self._busy_s),
            *_read(self._look()),
        ]

    def _count_requests(self, requests: list[Ended]) -> None:
        for request in requests:
            self._requests.add(request.outcome, request.rows, request.tokens)
        self._request_s.add(request.seconds for request in requests)

    def _count_steps(self, steps: list[Step]) -> None:
        self._step_s.add(step.arrived - step.started for step in steps)
        self._tokens.add(step.tokens for step in steps)
        self._sequences.add(step.sequences for step in steps)
        for step in sorted(steps):  # they may overlap, and time is counted once
            self._busy_s += max(0.0, step.arrived - max(step.started, self._busy_until))
            self._busy_until = max(self._busy_until, step.arrived)


def _read(state: EngineState) -> list[Sample]:
    graphs = state.graphs
    ways = {"hit": graphs.replayed, "stand_in": graphs.stood_in, "miss": graphs.missed, "above": graphs.above}
    return [
        _QUEUE_TOKENS.sample(state.queue_tokens),
        _QUEUE_AGE.sample(state.queue_oldest_s),
        _PADDED.sample(graphs.padded_tokens),
        *(_GRAPH_BATCHES.sample(n, way=way) for way, n in ways.items()),
        _CAPTURES.sample(graphs.captured),
        _CAPTURE_S.sample(graphs.capture_s),
        _EVICTIONS.sample(graphs.evicted),
        _FAILURES.sample(graphs.failed),
        _GRAPHS.sample(graphs.graphs),
        _GRAPH_BYTES.sample(graphs.graph_bytes),
    ]
