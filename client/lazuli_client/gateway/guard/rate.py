"""How many requests may come, and how many may be under way.

Takes a name (a key or an address) and the time, returns how long to wait. A process counts its own.
"""

from collections import OrderedDict

_MOST_NAMES = 10_000
_BURST_S = 2.0


class Rate:
    """A bucket of tokens for each name, full for two seconds' worth of requests, at least one."""

    def __init__(self, per_s: float) -> None:
        """Allow so many requests a second; 0 allows any number."""
        self._per_s = per_s
        self._size = max(1.0, per_s * _BURST_S)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, name: str, now: float) -> float:
        """0 if the request may go on, and is counted; else seconds until one may."""
        if not self._per_s:
            return 0.0
        level, then = self._buckets.pop(name, (self._size, now))
        level = min(self._size, level + (now - then) * self._per_s)
        wait_s = 0.0 if level >= 1.0 else (1.0 - level) / self._per_s
        self._buckets[name] = (level if wait_s else level - 1.0, now)
        if len(self._buckets) > _MOST_NAMES:  # the one that was seen longest ago is full again, or nearly
            self._buckets.popitem(last=False)
        return wait_s
