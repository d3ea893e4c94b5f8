"""When graphs are captured: before the engine is ready, in idle gaps, or for a small share of the time.

Takes a stepper that can capture, and the profile of earlier runs. Knows nothing of CUDA, and little of the runner: that
says when nothing else is to be done.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from lazuli.buckets import Bucket
from lazuli.capture_budget import CaptureBudget
from lazuli.graph import GraphCache
from lazuli.graph_profile import GraphProfile, ProfileFile
from lazuli.inflection import find_inflection

_log = logging.getLogger(__name__)
_LEAST_INFLECTION = 1024  # below it a graph always wins, on any GPU of interest
_SAVE_EVERY_S = 60.0
# A bucket asked for once may never be asked for again: not worth a delay of other requests.
_LEAST_ASKED_WHEN_BUSY = 2


class Capturer(Protocol):
    """What is needed of a stepper."""

    @property
    def graphs(self) -> GraphCache[Any]:
        """The graphs that there are."""

    def run_dummy(self, bucket: Bucket) -> None:
        """Run a bucket eagerly."""

    def capture(self, bucket: Bucket, *, give_way: bool = False) -> bool:
        """Make the graph of a bucket; others may step meanwhile if it gives way. Returns whether there is one now."""

    def limit(self, max_tokens: int) -> None:
        """Run larger batches eagerly from now on."""

    def time_launch(self, bucket: Bucket) -> float:
        """Seconds until an eager run is queued."""

    def time_replay(self, bucket: Bucket) -> float:
        """Seconds of a replay."""


class GraphKeeper:
    """Looks after the graphs of one stepper. For one thread, beside which another may step."""

    def __init__(
        self,
        stepper: Capturer,
        file: ProfileFile,
        *,
        max_tokens: int | None,
        start_s: float,
        busy_share: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wrap a stepper.

        Args:
            stepper: Captures.
            file: The profile of earlier runs, which is kept up.
            max_tokens: Of the largest batch that is worth a graph; None measures it, or takes it from the profile.
            start_s: Most seconds of captures at the start.
            busy_share: Most seconds of captures a second while requests come in.
            clock: The time in seconds.
        """
        self._stepper = stepper
        self._file = file
        self._inflection = max_tokens
        self._measures = max_tokens is None
        self._start_s = start_s
        self._clock = clock
        self._budget = CaptureBudget(busy_share, clock)
        self._profile = self._written = GraphProfile()
        self._saved_hits = 0
        self._saved_at = clock()

    def start(self) -> None:
        """Load kernels, measure from which size on batches need no graph, and capture what will be asked for."""
        graphs = self._stepper.graphs
        self._profile = self._written = self._file.load()
        # These also compile what the others need, and let a failure show before anything is served.
        # The largest first, so that the others find memory and buffers that are large enough.
        for bucket in reversed(graphs.table.coarse):
            self._stepper.run_dummy(bucket)
        if self._measures:
            self._inflection = self._profile.inflection or self._measure()
            self._stepper.limit(self._inflection)
        wanted = self._wanted()
        deadline = self._clock() + self._start_s
        evicted = graphs.counters.evicted
        while wanted and self._clock() < deadline:
            bucket = wanted.pop(0)
            if bucket not in graphs:
                self._stepper.capture(bucket)
            if graphs.is_full or graphs.counters.evicted > evicted:
                wanted.clear()  # the most used are there; more would throw them out
        for bucket in wanted:
            graphs.ask_for(bucket, self._profile.hits.get(bucket, 1))
        _log.info(
            "graphs: %d captured for batches up to %s tokens, %d to be captured later; %.0f MB",
            len(graphs),
            self._inflection,
            len(wanted),
            graphs.snapshot().graph_bytes / 1e6,
        )
        self.save()

    def use_idle_time(self, *, quiet: bool) -> bool:
        """Capture one graph if it is time for that.

        Args:
            quiet: Whether no request came for a while; else captures keep to their share of the time.

        Returns:
            Whether there is more to do.
        """
        graphs = self._stepper.graphs
        bucket = None
        if graphs.waits_for_idle:
            bucket = graphs.next_waiting(1 if quiet else _LEAST_ASKED_WHEN_BUSY)
        if bucket is not None and (quiet or self._budget.allows()):
            start = self._clock()
            self._stepper.capture(bucket, give_way=True)
            self._budget.spend(self._clock() - start)
        elif quiet and self._is_unsaved():
            self.save()
        return (graphs.waits_for_idle and graphs.next_waiting() is not None) or self._is_unsaved()

    def save(self) -> None:
        """Write the profile, if it has changed: half of what earlier runs asked for, and what this one did."""
        asked = self._stepper.graphs.hits
        hits = dict(self._profile.hits)
        if asked:
            hits = {bucket: count // 2 for bucket, count in hits.items() if count > 1}
            for bucket, count in asked.items():
                hits[bucket] = hits.get(bucket, 0) + count
        profile = GraphProfile(self._inflection if self._measures else self._profile.inflection, hits)
        if profile != self._written:
            self._file.save(profile)
        self._written = profile
        self._saved_hits = self._stepper.graphs.hits.total()
        self._saved_at = self._clock()

    def close(self) -> None:
        """Write the profile and log the counters."""
        if self._stepper.graphs.hits.total() > self._saved_hits:
            self.save()
        counters = asdict(self._stepper.graphs.snapshot())
        _log.info("graphs: %s", ", ".join(f"{name} {value:.6g}" for name, value in counters.items()))

    def _is_unsaved(self) -> bool:
        is_new = self._stepper.graphs.hits.total() > self._saved_hits
        return is_new and self._clock() - self._saved_at >= _SAVE_EVERY_S

    def _wanted(self) -> list[Bucket]:
        """What to capture first: the largest, whose memory the others share, what was used, and one of each size."""
        table = self._stepper.graphs.table
        coarse = sorted(table.coarse, key=lambda bucket: (-bucket.num_tokens, -bucket.num_sequences))
        used = [bucket for bucket in self._profile.most_used() if bucket in table.buckets]
        return list(dict.fromkeys([*coarse[:1], *used, *coarse]))

    def _measure(self) -> int:
        table = self._stepper.graphs.table
        sizes = {bucket.num_tokens for bucket in table.coarse if bucket.num_tokens >= _LEAST_INFLECTION}
        if not sizes:
            return table.max_tokens
        start = self._clock()
        inflection = find_inflection(sizes, lambda size: self._stepper.time_launch(table.typical(size)), self._replay_s)
        _log.info(
            "graphs: launching is a small part of eager runs from %d tokens on (measured in %.1f s)",
            inflection,
            self._clock() - start,
        )
        return inflection

    def _replay_s(self, size: int) -> float:
        graphs = self._stepper.graphs
        bucket = graphs.table.typical(size)
        if bucket not in graphs and not self._stepper.capture(bucket):
            return math.inf
        return self._stepper.time_replay(bucket)
