"""What each process of a server holds over a soak, and whether it grows.

Takes readings; returns slopes, and lines for the result file. Growth is the median of the slopes between all pairs of
readings (Theil and Sen), so that single peaks count for little, in units per 100,000 requests. What leaks grows all the
time, an allocator in steps; so it counts if it is too much over the whole run and over each third of it.
"""

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise

import numpy as np

import lazuli
from reporting.measurement import provenance

SUITE = "soak"
# After fewer requests, once warm, growth is not judged: it may still be caches and pools that fill up.
LEAST_REQUESTS = 30_000
# The share of a run whose readings do not count: caches and pools fill up.
WARM_UP = 0.25
PER = 100_000
# Of all processes together.
WHOLE = "all processes"
# What is read -> the most that it may grow in 100,000 requests, and the least growth over the whole run that counts:
# less is what allocators and a machine's noise make of it.
LIMITS: dict[str, tuple[float, float]] = {
    "rss_mib": (5.0, 8.0),
    "shm_mib": (1.0, 2.0),
    "device_mib": (5.0, 16.0),
    "threads": (1.0, 2.0),
    "files": (1.0, 4.0),
}


@dataclass
class Held:
    """What a process, or all of them, held: readings in order.

    Attributes:
        pids: The processes; another one in place of the first is a restart.
        requests: Answered until each reading.
        values: By the names of `LIMITS`.
    """

    pids: set[int] = field(default_factory=set)
    requests: list[int] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, requests: int, **values: float) -> None:
        """Take a reading."""
        self.requests.append(requests)
        for name, value in values.items():
            self.values.setdefault(name, []).append(round(value, 1))

    def growth(self, name: str) -> float:
        """Of what is read, in 100,000 requests, once the run is warm."""
        return self._growth(name, int(WARM_UP * len(self.requests)), len(self.requests))

    def can_be_judged(self) -> bool:
        """Whether there were requests enough for it."""
        return self.requests[-1] - self.requests[int(WARM_UP * len(self.requests))] >= LEAST_REQUESTS

    def grows(self, name: str) -> bool:
        """Whether that is more than the limit, over the whole and over each third."""
        if not self.can_be_judged():
            return False
        count = len(self.requests)
        first = int(WARM_UP * count)
        most, least = LIMITS[name]
        places = [first + third * (count - first) // 3 for third in range(4)]
        parts = [self._growth(name, *ends) for ends in pairwise(places)]
        whole = self.growth(name)
        return min(whole, *parts) > most and whole / PER * (self.requests[-1] - self.requests[first]) > least

    def _growth(self, name: str, first: int, end: int) -> float:
        return PER * slope(self.requests[first:end], self.values[name][first:end])


@dataclass
class Footprint:
    """One line of the result file: what a process held, reading by reading, and whether that grows.

    Attributes:
        note: The process.
        requests: Answered until each reading.
        growth: In 100,000 requests, by what is read.
        grows: What grows by more than it may.
    """

    model: str
    dtype: str
    note: str
    requests: list[int]
    held: dict[str, list[float]]
    growth: dict[str, float]
    grows: list[str]
    interval_s: float
    system: str = field(default=f"lazuli {lazuli.__version__}")
    level: str = "server"
    suite: str = SUITE

    def to_line(self) -> str:
        """The JSON line."""
        return json.dumps(asdict(self) | provenance())


def slope(at: list[int], values: list[float]) -> float:
    """The median of the slopes between all pairs of readings; 0 where there is but one."""
    x, y = np.array(at, np.float64), np.array(values, np.float64)
    left, right = np.triu_indices(len(x), 1)
    apart = x[right] - x[left]
    moved = apart > 0
    return float(np.median((y[right] - y[left])[moved] / apart[moved])) if moved.any() else 0.0
