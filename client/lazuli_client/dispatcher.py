"""Sends requests from threads: a bounded number at once, each with its retries, the answers in order.

Takes requests and a way to read their outputs. Does not know what is asked for, nor how messages are laid out.
"""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from itertools import chain

from lazuli_client import forking
from lazuli_client.closed import ClosedTransport
from lazuli_client.errors import ClosedError, LazuliError
from lazuli_client.reading import Answer, Reading
from lazuli_client.request import EmbedRequest
from lazuli_client.settings import Settings
from lazuli_client.transport import Transport

_Window = deque[tuple[EmbedRequest, Future[Answer]]]


class Dispatcher:
    """A transport and the threads that use it.

    Attributes:
        transport: The transport, or once it is closed one that says so.
    """

    def __init__(self, settings: Settings, transport: Transport) -> None:
        self.transport = transport
        self._settings = settings
        self._start_threads()
        forking.watch(self)

    def check_open(self, error: LazuliError) -> None:
        """Raise `ClosedError` for a failure of the transport that `close` was the cause of, whatever it calls it."""
        if isinstance(self.transport, ClosedTransport):
            raise ClosedError from error

    def after_fork(self) -> None:
        """Take threads of its own in a child process; a transport sees to itself."""
        if not isinstance(self.transport, ClosedTransport):
            self._start_threads()

    def close(self) -> None:
        """Close the transport; requests that are under way end with `ClosedError`."""
        transport, self.transport = self.transport, ClosedTransport()
        transport.close()  # ends the waiting in the threads, where the transport can
        self._pool.shutdown(cancel_futures=True)

    def _start_threads(self) -> None:
        self._pool = ThreadPoolExecutor(self._settings.max_in_flight, thread_name_prefix="lazuli-client")

    def gather(self, requests: Iterator[EmbedRequest], reading: Reading[Answer]) -> Answer:
        """Send the requests of one batch."""
        first = next(requests)
        if first.ends_batch:
            # Spares who waits for one query the way through the pool. Joined, for arrays that can be written to.
            return reading.join([self._send(first, reading)])
        return next(self.run(chain([first], requests), reading))

    def run(self, requests: Iterator[EmbedRequest], reading: Reading[Answer]) -> Iterator[Answer]:
        """Send requests, a bounded number at once; yield one answer a batch, in order."""
        window: _Window[Answer] = deque()
        done: list[Answer] = []
        try:
            for request in requests:
                window.append((request, self.submit(request, reading)))
                # Twice as many as there are threads: a slow first one must not leave the others without work.
                while len(window) >= 2 * self._settings.max_in_flight:
                    yield from _collect(window, done, reading)
            while window:
                yield from _collect(window, done, reading)
        finally:
            for _, future in window:
                future.cancel()

    def submit(self, request: EmbedRequest, reading: Reading[Answer], retries: bool = True) -> Future[Answer]:
        """Send a request from one of the threads."""
        try:
            return self._pool.submit(self._send, request, reading, retries)
        except RuntimeError as error:  # the pool is shut down
            raise ClosedError from error

    def _send(self, request: EmbedRequest, reading: Reading[Answer], retries: bool = True) -> Answer:
        """One request with its retries, all within the timeout."""
        end = time.monotonic() + self._settings.timeout_s
        attempt = 0
        left_s = self._settings.timeout_s
        while True:
            try:
                return reading.read(
                    self.transport.send(self._settings.mark(request, left_s), left_s), len(request.rows)
                )
            except LazuliError as error:
                self.check_open(error)
                left_s = end - time.monotonic()
                delay_s = self._settings.retry.next_delay_s(error, attempt, left_s) if retries else None
                if delay_s is None:
                    raise error.renumbered(request.rows) from error
            time.sleep(delay_s)
            left_s -= delay_s
            attempt += 1


def _collect(window: _Window[Answer], done: list[Answer], reading: Reading[Answer]) -> Iterator[Answer]:
    """Wait for the oldest request; yield its batch if it was the last one of it."""
    request, future = window.popleft()
    try:
        done.append(future.result())
    except CancelledError:  # by `close`, in another thread
        raise ClosedError from None
    if request.ends_batch:
        yield reading.join(done)
        done.clear()
