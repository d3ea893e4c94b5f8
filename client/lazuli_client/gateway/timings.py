"""How long each stage of a request took, as the header `Server-Timing` tells it.

Takes seconds by name, returns the header. Chunks of a request run beside each other: of those the longest counts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
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

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block."""
        start = perf_counter()
        try:
            yield
        finally:
            self.add(name, perf_counter() - start)

    def header(self) -> str:
        """Stages in milliseconds, such as `parse;dur=0.1, engine;dur=4.2`."""
        return ", ".join(f"{name};dur={self.seconds[name] * 1e3:.3f}" for name in STAGES if name in self.seconds)
