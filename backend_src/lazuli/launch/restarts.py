"""How often a server that fails is started again, and how soon.

Takes faults as they come; returns pauses. Starts nothing.
"""

import time
from collections.abc import Callable

from lazuli.launch.errors import LaunchError

WINDOW_S = 600.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class Restarts:
    """Exponential back-off up to a limit.

    Attributes:
        limit: Most restarts within `WINDOW_S`.
        total: Restarts so far.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.total = 0
        self._clock = clock
        self._recent_s: list[float] = []

    def next_pause_s(self, fault: str) -> float:
        """Count one more.

        Args:
            fault: Why.

        Returns:
            How long to wait before: twice as long each time, until the server has not failed for `WINDOW_S`.

        Raises:
            LaunchError: There were too many.
        """
        now_s = self._clock()
        self._recent_s = [at_s for at_s in self._recent_s if now_s - at_s < WINDOW_S]
        if len(self._recent_s) >= self.limit:
            raise LaunchError(f"gave up after {self.limit} restarts within {WINDOW_S / 60:g} minutes: {fault}")
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** len(self._recent_s))
        self._recent_s.append(now_s)
        self.total += 1
        return pause_s

    @property
    def recent(self) -> int:
        """Restarts that count now."""
        return len(self._recent_s)
