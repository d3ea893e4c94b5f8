"""Whether the user asked to stop, and whether again: by SIGINT, SIGTERM or SIGHUP.

Takes signals; answers questions. Does not know what is to be stopped.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.1
# Two signals within this time are one wish.
_SAME_S = 0.5


class StopRequest:
    """Plain attributes, as `set` of a `threading.Event` in a signal handler can deadlock with its `wait`."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._again = False

    def note(self) -> None:
        """Count one request; `timeout` and `make` send the same one twice."""
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        elif now_s - self._first_s > _SAME_S:
            self._again = True

    def asked(self) -> bool:
        """Whether to stop."""
        return self._first_s is not None

    def asked_twice(self) -> bool:
        """Whether to stop at any price."""
        return self._again

    def wait(self, seconds: float) -> bool:
        """Sleep, but not after a stop was asked for.

        Returns:
            Whether to stop.
        """
        deadline = time.monotonic() + seconds
        while not self.asked() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left))
        return self.asked()

    @contextmanager
    def from_signals(self) -> Iterator["StopRequest"]:
        """Count the signals while inside; a signal that is ignored (as under nohup) stays ignored."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.note()

        before = {number: signal.getsignal(number) for number in _SIGNALS}
        caught = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
        for number in caught:
            signal.signal(number, handle)
        try:
            yield self
        finally:
            for number in caught:
                signal.signal(number, before[number])
