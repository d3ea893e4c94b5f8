"""Finds the requests that nobody waits for any more, while they wait.

Takes requests, asks them now and then whether they were cancelled, and has the rows of those that were let go of. Knows
nothing of Triton. To ask is a round trip to the server process, about 50 microseconds: so it is done by a thread of its
own, not when a batch is formed, and so many times a second at most. What came through an ensemble, or over HTTP, cannot
be told from the rest, and Triton 24.10 never says that it was cancelled: it is asked in vain, within that limit.
"""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable

from lazuli.request import Request

_log = logging.getLogger(__name__)
_INTERVAL_S = 0.1
# In an interval: with their round trips they take 2 ms of it. Of more requests each is asked less often, in turns.
_MOST_ASKED = 32


class CancellationWatch:
    """Asks until it is closed. Requests that are answered, and those that are gone, are forgotten."""

    def __init__(
        self, let_go: Callable[[], None], *, interval_s: float = _INTERVAL_S, most_asked: int = _MOST_ASKED
    ) -> None:
        """Start the thread.

        Args:
            let_go: Called after some were found: their rows need not be computed.
            interval_s: Pause between two looks.
            most_asked: Requests asked in one.
        """
        self._let_go = let_go
        self._interval_s = interval_s
        self._most_asked = most_asked
        # Weak, so that the tensors of what was answered do not stay in shared memory until the next look.
        self._watched: deque[weakref.ref[Request]] = deque()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lazuli-cancellation", daemon=True)
        self._thread.start()

    def add(self, request: Request) -> None:
        """Ask a request, too, from the next look on."""
        self._watched.append(weakref.ref(request))

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def look(self) -> None:
        """Ask those whose turn it is."""
        num_asked, found = 0, False
        for _ in range(len(self._watched)):
            if num_asked == self._most_asked:
                break
            reference = self._watched.popleft()
            request = reference()
            if request is None or request.done:
                continue
            num_asked += 1
            if request.fail_if_cancelled():
                found = True
            else:
                self._watched.append(reference)
        if found:
            self._let_go()

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            try:
                self.look()
            except Exception:  # no request is lost by it: that one is not asked again, and the others are
                _log.exception("a request could not be asked whether it was cancelled")
