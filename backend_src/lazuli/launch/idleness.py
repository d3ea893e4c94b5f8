"""Whether a server that starts does anything at all.

Takes what its processes have used so far; says whether that has not changed for long. In Triton 24.10 a stub that is
late with a sign of life, as on a busy machine, can leave a start in which both ends wait for each other for ever.
"""

import time
from collections.abc import Callable

# A process that waits still looks around some times a second. To load, or to read from a slow disk, takes more.
_LEAST_CPU_S = 0.2
_LEAST_READ_BYTES = 1 << 20
_INTERVAL_S = 1.0


class Idleness:
    """Looks at a server now and then."""

    def __init__(
        self,
        used: Callable[[], tuple[float, int]],
        longest_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch.

        Args:
            used: Processor time in seconds and bytes read from disks, of all processes.
            longest_s: What is too long.
            clock: Only goes forward.
        """
        self.longest_s = longest_s
        self._used = used
        self._clock = clock
        self._before = used()
        self._since_s = self._looked_s = clock()

    def is_too_long(self) -> bool:
        """Whether hardly anything has happened for `longest_s`; may be asked as often as one likes."""
        now_s = self._clock()
        if now_s - self._looked_s < _INTERVAL_S:
            return False
        self._looked_s = now_s
        cpu_s, read_bytes = self._used()
        # Less than before counts, too: a process that ends takes its share away.
        if abs(cpu_s - self._before[0]) >= _LEAST_CPU_S or abs(read_bytes - self._before[1]) >= _LEAST_READ_BYTES:
            self._before, self._since_s = (cpu_s, read_bytes), now_s
        return now_s - self._since_s >= self.longest_s
