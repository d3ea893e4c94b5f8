"""One server: its connection, what it has to do, and whether it is fit for more.

Takes requests, returns outputs. Does not choose, retry or watch: `pool.py`, `transport.py`, `watch.py`.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from lazuli_client.embeddings import Outputs
from lazuli_client.errors import ConnectionFailedError, DeadlineError
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.replicas.wire import Wire
from lazuli_client.request import EmbedRequest

# An attempt is not cancelled on the wire: unary deadlines of some milliseconds crash Triton 24.10 (server#7368,
# #8034). A server that never answers is left alone after this.
WIRE_TIMEOUT_S = 120.0
_FIRST_REST_S, _LONGEST_REST_S = 0.05, 1.0


class State(StrEnum):
    """Whether a server gets work."""

    UP = "up"
    DOWN = "down"


@dataclass(slots=True)
class _Rest:
    """Of a model that has refused: until when, and how long the next one is."""

    until: float = 0.0
    next_s: float = _FIRST_REST_S


class Replica:
    """A server and what was sent to it.

    Attributes:
        address: host:port.
        state: As the last probe, or the last failure, says.
        reason: Why it is down.
        outstanding_tokens: Tokens of requests that it has not answered.
        outstanding_bulk: Those of them that are of bulk.
        answers: How often it has answered, or refused.
        refusals: How often it had too much to do.
        failures: How often it was taken out.
    """

    def __init__(self, address: str, wire: Wire, changed: Callable[[], None]) -> None:
        """Wrap a connection.

        Args:
            address: host:port.
            wire: The connection.
            changed: Called whenever what the server takes may be something else than before.
        """
        self.address = address
        self.state = State.DOWN
        self.reason = "not asked yet"
        self.outstanding_tokens = 0
        self.outstanding_bulk = 0
        self.answers = 0
        self.refusals = 0
        self.failures = 0
        self.wire = wire
        self._changed = changed
        self._pending: set[asyncio.Future[Outputs]] = set()
        self._rests: defaultdict[str, _Rest] = defaultdict(_Rest)

    def is_ready(self, model: str, now: float) -> bool:
        """Whether it may get work for a model; `now` is the time of the event loop."""
        return self.state is State.UP and self._rests[model].until <= now

    async def send(self, request: EmbedRequest, tokens: int, call: Call) -> Outputs:
        """One attempt.

        Raises:
            ConnectionFailedError: Also if the server is taken out meanwhile.
            DeadlineError: If the request's time is over.
            LazuliError: What the server said.
        """
        loop = asyncio.get_running_loop()
        bulk = tokens if call.is_bulk else 0
        self.outstanding_tokens += tokens
        self.outstanding_bulk += bulk
        pending: asyncio.Future[Outputs] = loop.create_future()
        self._pending.add(pending)
        attempt = loop.create_task(self.wire.send(request, WIRE_TIMEOUT_S, call.request_id))
        attempt.add_done_callback(partial(self._answered, pending, request.model, tokens, bulk))
        alarm = loop.call_at(call.deadline, _expire, pending)
        try:
            return await pending
        finally:
            alarm.cancel()
            self._pending.discard(pending)

    def _answered(
        self, pending: asyncio.Future[Outputs], model: str, tokens: int, bulk: int, attempt: asyncio.Task[Outputs]
    ) -> None:
        """Pass on what came, unless nobody waits any more; only now the server has less to do."""
        self.outstanding_tokens -= tokens
        self.outstanding_bulk -= bulk
        self.answers += 1
        error = ConnectionFailedError("the gateway stops") if attempt.cancelled() else attempt.exception()
        if not pending.done():
            if error is not None:
                pending.set_exception(error)
            else:
                self._rests[model].next_s = _FIRST_REST_S
                pending.set_result(attempt.result())
        self._changed()

    def rest(self, model: str) -> None:
        """A model has refused for now: let it be for a while, a longer one each time. The others go on."""
        loop, rest = asyncio.get_running_loop(), self._rests[model]
        self.refusals += 1
        if rest.until > loop.time():  # refusals of one burst are one
            return
        pause_s = rest.next_s * random.uniform(0.5, 1.0)
        rest.next_s = min(2 * rest.next_s, _LONGEST_REST_S)
        rest.until = loop.time() + pause_s
        loop.call_later(pause_s, self._changed)

    def take_out(self, reason: str, *, abandon: bool = True) -> None:
        """Give it no more work and, with `abandon`, give up what it has."""
        self.failures += self.state is State.UP
        self.state, self.reason = State.DOWN, reason
        for pending in self._pending:
            if abandon and not pending.done():
                pending.set_exception(ConnectionFailedError(f"the server {self.address} was taken out: {reason}"))
        self._changed()  # those who wait for room wait for something else now

    def take_back(self) -> None:
        """Give it work again."""
        self.state, self.reason = State.UP, ""
        self._changed()


def _expire(pending: asyncio.Future[Outputs]) -> None:
    if not pending.done():
        pending.set_exception(DeadlineError("no answer within the time that the request had"))
