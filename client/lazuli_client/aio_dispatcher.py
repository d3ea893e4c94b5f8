"""Sends requests from asyncio tasks: a bounded number at once, each with its retries, the answers in order.

Takes requests and a way to read their outputs, as `dispatcher.py` does.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from typing import TypeVar

from lazuli_client.closed import AsyncClosedTransport
from lazuli_client.errors import ClosedError, LazuliError
from lazuli_client.reading import Answer, Reading
from lazuli_client.request import EmbedRequest
from lazuli_client.settings import Settings
from lazuli_client.transport import AsyncTransport, connect_async

T = TypeVar("T")
_Window = deque[tuple[EmbedRequest, asyncio.Task[Answer]]]


class AsyncDispatcher:
    """A transport, and how many may use it at once."""

    def __init__(self, settings: Settings, transport: AsyncTransport | None) -> None:
        self._settings = settings
        self._connected = transport
        self._slots = asyncio.Semaphore(settings.max_in_flight)

    def transport(self) -> AsyncTransport:
        """The transport, made at the first use, because it must be made inside the event loop."""
        if self._connected is None:
            self._connected = connect_async(self._settings)
        return self._connected

    async def close(self) -> None:
        """Close the transport; requests that are under way end with `ClosedError`."""
        connected, self._connected = self._connected, AsyncClosedTransport()
        if connected is not None:
            await connected.close()

    def failure(self, error: LazuliError | asyncio.CancelledError) -> LazuliError:
        """The failure of the transport, where `close` was not the cause; grpc's asyncio calls that a cancellation.

        Raises:
            ClosedError: If the client was closed meanwhile.
            asyncio.CancelledError: If the caller is cancelled.
        """
        task = asyncio.current_task()
        is_callers = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
        if isinstance(self._connected, AsyncClosedTransport) and not is_callers:
            raise ClosedError from error
        if isinstance(error, asyncio.CancelledError):
            raise error
        return error

    async def run(
        self, requests: Iterable[EmbedRequest] | AsyncIterable[EmbedRequest], reading: Reading[Answer]
    ) -> AsyncGenerator[Answer, None]:
        """Send requests, a bounded number at once; yield one answer a batch, in order."""
        window: _Window[Answer] = deque()
        done: list[Answer] = []
        try:
            async for request in as_async(requests):
                window.append((request, asyncio.create_task(self.send(request, reading))))
                # Twice as many as there are slots: a slow first one must not leave the others without work.
                while len(window) >= 2 * self._settings.max_in_flight:
                    if (batch := await _collect(window, done, reading)) is not None:
                        yield batch
            while window:
                if (batch := await _collect(window, done, reading)) is not None:
                    yield batch
        finally:
            for _, task in window:
                task.cancel()
            await asyncio.gather(*(task for _, task in window), return_exceptions=True)

    async def send(self, request: EmbedRequest, reading: Reading[Answer], retries: bool = True) -> Answer:
        """One request with its retries, all within the timeout, which starts when a slot is free."""
        async with self._slots:
            end = time.monotonic() + self._settings.timeout_s
            attempt = 0
            left_s = self._settings.timeout_s
            while True:
                try:
                    return reading.read(
                        await self.transport().send(self._settings.mark(request, left_s), left_s), len(request.rows)
                    )
                except (LazuliError, asyncio.CancelledError) as raised:
                    error = self.failure(raised)
                    left_s = end - time.monotonic()
                    delay_s = self._settings.retry.next_delay_s(error, attempt, left_s) if retries else None
                    if delay_s is None:
                        raise error.renumbered(request.rows) from error
                await asyncio.sleep(delay_s)
                left_s -= delay_s
                attempt += 1


async def as_async(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """The items of either kind of iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _collect(window: _Window[Answer], done: list[Answer], reading: Reading[Answer]) -> Answer | None:
    """Wait for the oldest request; its batch if it was the last one of it."""
    request, task = window[0]
    done.append(await task)  # stays in the window until it is done: a cancelled caller must cancel it too
    window.popleft()
    if not request.ends_batch:
        return None
    batch = reading.join(done)
    done.clear()
    return batch
