"""How much time captures may take while requests come in.

Takes the seconds that captures took, returns whether another may start. Knows nothing of graphs.
"""

import time
from collections.abc import Callable


class CaptureBudget:
    """A share of the time that passes. What is not used is lost after a second."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with what a second gives.

        Args:
            share: Seconds of captures for each second.
            clock: The time in seconds.
        """
        self._share = share
        self._clock = clock
        self._left_s = share
        self._then = clock()

    def allows(self) -> bool:
        """Whether a capture may start. It may take longer than what is left: then the next one waits longer."""
        now = self._clock()
        self._left_s = min(self._left_s + (now - self._then) * self._share, self._share)
        self._then = now
        return self._left_s > 0

    def spend(self, seconds: float) -> None:
        """Note what a capture took."""
        self._left_s -= seconds
