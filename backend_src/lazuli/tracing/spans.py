"""Requests that ended, as spans of OpenTelemetry.

Takes traces of requests from any thread; hands spans to a provider of the SDK from a thread of its own, so that nobody
waits for it. The times come from the monotonic clock, and are those of the wall clock by what it shows then.
"""

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lazuli.metrics.recorder import OK

if TYPE_CHECKING:
    from lazuli.tracing.request_trace import RequestTrace

_log = logging.getLogger(__name__)
# More than a second's worth; who traces all of a busy server's requests should let the sampler choose some.
_MOST_WAITING = 4096
_FLUSH_S = 2.0
_NS = 1_000_000_000


class Tracer:
    """Makes spans until it is closed."""

    def __init__(self, provider: Any, span_name: str) -> None:
        """Start the thread.

        Args:
            provider: A `TracerProvider` of the SDK; shut down at the end.
            span_name: Of the span of a request; below it are `queue`, `step` and `reply` if it had steps.
        """
        self._provider = provider
        self._tracer = provider.get_tracer("lazuli")
        self._span_name = span_name
        self._propagator = TraceContextTextMapPropagator()
        self._ended: queue.Queue[tuple[RequestTrace, float, str, dict[str, int]] | None] = queue.Queue(_MOST_WAITING)
        self._dropped = False
        self._thread = threading.Thread(target=self._run, name="lazuli-tracer", daemon=True)
        self._thread.start()

    def trace(self, request: "RequestTrace", ended: float, outcome: str, counts: dict[str, int]) -> None:
        """A request ended; does not block.

        Args:
            request: What is known of it.
            ended: When, on the monotonic clock.
            outcome: `ok` or the kind of error.
            counts: Of rows and so on, by name.
        """
        try:
            self._ended.put_nowait((request, ended, outcome, counts))
        except queue.Full:
            if not self._dropped:
                _log.warning("more requests are traced than spans can be made of: some are left out")
            self._dropped = True

    def close(self) -> None:
        """Make what is left into spans, and send them if they can be sent soon."""
        self._ended.put(None)
        self._thread.join()
        # The SDK's own limits are 30 s, and more if the collector is away: a server would be killed meanwhile.
        ending = threading.Thread(target=self._provider.shutdown, name="lazuli-last-spans", daemon=True)
        ending.start()
        ending.join(_FLUSH_S)
        if ending.is_alive():
            _log.warning("the last spans could not be sent within %g s", _FLUSH_S)

    def _run(self) -> None:
        while (ended := self._ended.get()) is not None:
            try:
                self._make(*ended)
            except Exception:
                _log.exception("spans could not be made")

    def _make(self, request: "RequestTrace", ended: float, outcome: str, counts: dict[str, int]) -> None:
        parent = self._propagator.extract(request.context)
        if not get_current_span(parent).get_span_context().is_valid:
            return
        ahead_s = time.time() - time.monotonic()

        def at(moment: float) -> int:
            return int((moment + ahead_s) * _NS)

        attributes: dict[str, Any] = {f"lazuli.{name}": value for name, value in counts.items()}
        attributes |= {"lazuli.outcome": outcome}
        if request.request_id:
            attributes["lazuli.request_id"] = request.request_id
        span = self._tracer.start_span(
            self._span_name, parent, SpanKind.SERVER, attributes=attributes, start_time=at(request.started)
        )
        if span.is_recording():
            inside = set_span_in_context(span, parent)
            for name, begin, end, more in _stages(request, ended):
                child = self._tracer.start_span(name, inside, attributes=more, start_time=at(begin))
                child.end(at(end))
        if outcome != OK:
            span.set_status(Status(StatusCode.ERROR, outcome))
        span.end(at(ended))


def _stages(request: "RequestTrace", ended: float) -> list[tuple[str, float, float, dict[str, Any]]]:
    """What a request went through in an engine: name, begin, end and attributes."""
    # A request that was given up may still be on the device.
    steps = sorted(step for step in request.steps if step.arrived <= ended)
    if not steps:
        return []
    return [
        ("queue", request.started, steps[0].started, {}),
        *(
            ("step", step.started, step.arrived, {"lazuli.sequences": step.sequences, "lazuli.tokens": step.tokens})
            for step in steps
        ),
        ("reply", max(step.arrived for step in steps), ended, {}),
    ]
