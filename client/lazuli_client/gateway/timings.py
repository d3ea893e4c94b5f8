"""How long each stage of a request took, as the header `Server-Timing` tells it.

Takes seconds by name, returns the header. Chunks of a request run beside each other: of those the longest counts.
"""

from contextlib import AbstractContextManager
from time import perf_counter

STAGES = ("parse", "tokenize", "wait", "engine", "encode")


class Timings:
    """The stages of one request."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        """Count something that was done after what was counted before."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def longest(self, stage: str, seconds: float) -> None:
        """Count something that was done beside what was counted before."""
        self.seconds[stage] = max(self.seconds.get(stage, 0.0), seconds)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Count the block."""
        return _Stage(self, name)

    def header(self) -> str:
        """Stages in milliseconds, such as `parse;dur=0.1, engine;dur=4.2`."""
        return ", ".join(f"{name};dur={self.seconds[name] * 1e3:.3f}" for name in STAGES if name in self.seconds)


class _Stage(AbstractContextManager[None]):
    """A block that is counted. A class, for a generator takes as long as the shortest of them."""

    def __init__(self, timings: Timings, name: str) -> None:
        self._timings = timings
        self._name = name

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *error: object) -> None:
        self._timings.add(self._name, perf_counter() - self._start)
