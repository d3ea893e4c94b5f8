"""The metrics of a tokenizer model.

Takes what its recorder holds; returns samples. Called by one thread, now and then.
"""

from lazuli.metrics.histogram import SECONDS, Histogram
from lazuli.metrics.recorder import Tokenized, TokenizerRecorder, drain
from lazuli.metrics.requests import RequestCounts
from lazuli.metrics.samples import Sample, counter

_TRUNCATED = counter("lazuli_truncated_texts_total", "Texts of which something was cut off, as their request allowed.")


class TokenizerMetrics:
    """Counts what a recorder holds."""

    def __init__(self, recorder: TokenizerRecorder) -> None:
        """Count nothing yet."""
        self._recorder = recorder
        self._requests = RequestCounts(with_tokens=False)
        self._truncated = 0
        self._seconds = Histogram("lazuli_tokenize_seconds", "Time that a tokenizer took for a request.", SECONDS)

    def collect(self) -> list[Sample]:
        """Count what is new, and return all metrics."""
        for requests in drain(self._recorder.requests):
            self._count([Tokenized(*fields) for fields in requests])
        return [*self._requests.samples(), *self._seconds.samples(), _TRUNCATED.sample(self._truncated)]

    def _count(self, requests: list[Tokenized]) -> None:
        for request in requests:
            self._requests.add(request.outcome, request.rows)
            self._truncated += request.truncated
        self._seconds.add(request.seconds for request in requests)
