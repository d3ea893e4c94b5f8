"""Requests that take long, answered by threads of their own beside the others.

Takes functions that make a response, and sends what they return through Triton's response sender. Knows nothing of what
is computed. Without it, a query that comes while a thousand documents are tokenised waits for all of them.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import triton_python_backend_utils as pb_utils

from lazuli.triton import protocol
from lazuli.triton.shared_memory import AnswerRoom, no_room

_log = logging.getLogger(__name__)
# Their inputs stay in shared memory as long as they wait.
_MOST_WAITING_BYTES = 32 << 20


class Lane:
    """Threads, and what waits for them."""

    def __init__(self, room: AnswerRoom, threads: int = 1, most_bytes: int = _MOST_WAITING_BYTES) -> None:
        """Start with nothing.

        Args:
            room: For responses.
            threads: That answer at the same time.
            most_bytes: Once inputs of so many bytes wait, `submit` blocks.
        """
        self._room = room
        self._most_bytes = most_bytes
        self._bytes = 0
        self._less = threading.Condition()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="lazuli-request")

    def submit(self, num_bytes: int, sender: Any, answer: Callable[[], tuple[Any, int]]) -> None:
        """Answer a request later; waits while there is too much to do.

        Args:
            num_bytes: Of its inputs.
            sender: Triton's, of the request.
            answer: Makes the response and says how many bytes it has; must not raise.
        """
        with self._less:
            self._less.wait_for(lambda: self._bytes < self._most_bytes)
            self._bytes += num_bytes
        self._threads.submit(self._answer, num_bytes, sender, answer)

    def send(self, sender: Any, response: Any, num_bytes: int) -> None:
        """Send the only response of a request, or an error where shared memory has no room for it."""
        with self._room.reserve(num_bytes) as granted:
            if not granted:
                response = protocol.make_error(no_room(num_bytes))
            sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def close(self) -> None:
        """Answer what is left."""
        self._threads.shutdown()

    def _answer(self, num_bytes: int, sender: Any, answer: Callable[[], tuple[Any, int]]) -> None:
        try:
            self.send(sender, *answer())
        except Exception:  # nobody looks at what these threads return
            _log.exception("an answer could not be sent")
        finally:
            with self._less:
                self._bytes -= num_bytes
                self._less.notify_all()
