"""What becomes of one request on its way.

Takes times of the monotonic clock; tells an observer when the request ends. Knows nothing of logs and spans.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lazuli.metrics.recorder import Step
from lazuli.tracing.context import read_context, trace_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazuli.request import Sequence
    from lazuli.tracing.observer import Observer


class RequestTrace:
    """One request.

    Attributes:
        request_id: As its caller chose it; may be empty.
        context: The trace that it belongs to; empty if it has none, or nobody would hear of it.
        started: When it arrived.
        steps: The batches that its rows were in, if somebody wants to know.
    """

    __slots__ = ("_observer", "_parameters", "context", "request_id", "started", "steps")

    def __init__(self, observer: Observer, request_id: str, parameters: str, context: dict[str, str]) -> None:
        self._observer = observer
        self._parameters = parameters
        self.request_id = request_id
        self.context = context
        self.started = time.monotonic()
        self.steps: list[Step] = []

    def end(self, rows: int, tokens: int | None, error: BaseException | None = None) -> None:
        """Tell whoever wants to know that it was answered, or failed."""
        self._observer.ended(self, rows, tokens, error)

    def trace_id(self) -> str | None:
        """The trace that it belongs to, whether or not there is a tracer."""
        return trace_id(self.context or read_context(self._parameters))


def note_step(sequences: Iterable[Sequence], step: Step) -> None:
    """Let the requests of a batch know of it."""
    for request in {id(sequence.request): sequence.request for sequence in sequences}.values():
        if request.trace is not None:
            request.trace.steps.append(step)
