"""Sends the chunks of one request to whichever server may have them, and elsewhere if it fails.

Takes requests, returns outputs: an `AsyncTransport`, so that the client's dispatcher cuts, orders and joins as ever.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

from lazuli_client.embeddings import Outputs
from lazuli_client.errors import ConnectionFailedError, LazuliError, UnavailableError
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.replicas.patience import Patience
from lazuli_client.gateway.replicas.pool import Pool
from lazuli_client.gateway.replicas.replica import Replica
from lazuli_client.request import EmbedRequest
from lazuli_client.transport import AsyncStream, no_streams_over_http

# One server may have been killed and the next hang unnoticed; whoever breaks three is the reason himself.
_ATTEMPTS = 3


class PoolTransport:
    """The servers as one, for one request.

    A server that refuses has not begun: the chunk goes to whoever takes it. A chunk whose server breaks is tried twice
    more only: what kills servers must not kill all of them.
    """

    has_streams = False

    def __init__(
        self, pool: Pool, model: str, call: Call, tokens_of: Callable[[EmbedRequest], int], queue_s: float
    ) -> None:
        """Prepare for one request.

        Args:
            pool: The servers.
            model: What it is for.
            call: The request.
            tokens_of: Tokens of a chunk.
            queue_s: How long a chunk waits for a server that takes it.
        """
        self._pool = pool
        self._model = model
        self._call = call
        self._tokens_of = tokens_of
        self._queue_s = queue_s

    async def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """Send a chunk; the deadline is that of the whole request.

        Raises:
            LazuliError: What the last server said, or that there was none.
        """
        call, tokens, failed = self._call, self._tokens_of(request), list[Replica]()
        refusal: LazuliError | None = None
        patience = Patience(self._queue_s, call.deadline)
        while True:
            start = perf_counter()
            replica = await self._pool.acquire(
                self._model, tokens, is_bulk=call.is_bulk, avoid=failed, patience=patience, refusal=refusal
            )
            sent = perf_counter()
            call.timings.longest("wait", sent - start)
            try:
                outputs = await replica.send(self._marked(request), self._model, tokens, call)
            except UnavailableError as error:
                refusal = error
                replica.rest(self._model)
            except ConnectionFailedError as error:
                if replica.is_fit(self._model):  # else it was taken out, and what it had is why we are here
                    replica.take_out(str(error))
                failed.append(replica)
                if len(failed) == _ATTEMPTS:
                    raise
                patience.renew()
            else:
                call.timings.longest("engine", perf_counter() - sent)
                return outputs

    def open_stream(self) -> AsyncStream:
        """Not here."""
        raise no_streams_over_http()

    async def close(self) -> None:
        """The pool is closed by whoever made it."""

    def _marked(self, request: EmbedRequest) -> EmbedRequest:
        """The request with the trace that it belongs to, and the deadline of the application, if it has given one."""
        if not self._call.has_deadline:
            return replace(request, context=self._call.context) if self._call.context else request
        left_ms = max(1, int((self._call.deadline - asyncio.get_running_loop().time()) * 1e3))
        parameters = {**request.parameters, "deadline_ms": left_ms}
        return replace(request, parameters=parameters, context=self._call.context)
