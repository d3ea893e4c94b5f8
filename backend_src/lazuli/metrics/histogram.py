"""A histogram as Prometheus computes with it, made of counters.

Takes values, returns samples. Triton 24.10 has histograms of its own, but they take one value a call, and each call is
a round trip to the server; counters take the sum of many.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from lazuli.metrics.samples import Sample, counter

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Histogram:
    """Counts values by upper bounds."""

    def __init__(self, name: str, description: str, bounds: Sequence[float]) -> None:
        """Count nothing yet.

        Args:
            name: Without the ends `_bucket`, `_sum` and `_count`.
            description: One sentence.
            bounds: Ascending; one more without an end follows by itself.
        """
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._bucket = counter(f"{name}_bucket", f"{description} Values up to le.")
        self._sum = counter(f"{name}_sum", f"{description} Sum of all values.")
        self._count = counter(f"{name}_count", f"{description} Number of values.")
        self._labels = [*(f"{bound:g}" for bound in bounds), "+Inf"]

    def add(self, values: Iterable[float]) -> None:
        """Count values."""
        for value in values:
            self._counts[bisect_left(self._bounds, value)] += 1  # a value at a bound is under it
            self._total += value

    def samples(self) -> list[Sample]:
        """All counters, the widest bucket first.

        Whoever publishes them one after the other in this order never shows a bucket that holds less than a narrower
        one.
        """
        upward = list(accumulate(self._counts))
        buckets = [self._bucket.sample(n, le=label) for n, label in zip(upward, self._labels, strict=True)]
        return [self._sum.sample(self._total), self._count.sample(upward[-1]), *reversed(buckets)]
