"""A sender that the thread which asked waits on: for benchmarks of the service in process."""

import threading

from lazuli.errors import LazuliError
from lazuli.request import Part


class Waiter:
    """Notes that the answer came; the vectors are thrown away."""

    def __init__(self) -> None:
        """Wait for one answer."""
        self._done = threading.Event()
        self._error: LazuliError | Exception | None = None

    def prepare(self, part: Part) -> None:
        """Nothing is to be prepared."""

    def send(self, part: Part, *, final: bool) -> None:
        """An answer of one part."""
        self._done.set()

    def send_error(self, error: LazuliError | Exception) -> None:
        """An error in its place."""
        self._error = error
        self._done.set()

    def is_cancelled(self) -> bool:
        """Never."""
        return False

    def wait(self) -> None:
        """Wait for the answer.

        Raises:
            Exception: If it was an error.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error
