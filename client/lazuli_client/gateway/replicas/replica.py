"""One server: its connection, what it has to do, and for which models it is fit.

Takes requests, returns outputs. Does not choose, retry or watch: `pool.py`, `transport.py`, `watch.py`.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from lazuli_client.embeddings import Outputs
from lazuli_client.errors import ConnectionFailedError, DeadlineError
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.replicas.wire import Wire
from lazuli_client.request import EmbedRequest

# An attempt is not cancelled on the wire: unary deadlines of some milliseconds crash Triton 24.10 (server#7368,
# #8034). A server that never answers is left alone after this.
WIRE_TIMEOUT_S = 120.0
_FIRST_REST_S, _LONGEST_REST_S = 0.05, 1.0
_NOT_ASKED = "not asked yet"


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
        problems: Of each model that it has, why it gets no work for it; None if it does.
        reason: Why the server was last taken out as a whole.
        outstanding_tokens: Tokens of requests that it has not answered.
        outstanding_bulk: Those of them that are of bulk.
        answers: How often each model has answered, or refused.
        refusals: How often it had too much to do.
        failures: How often it, or one of its models, was taken out.
    """

    def __init__(self, address: str, wire: Wire, changed: Callable[[], None]) -> None:
        """Wrap a connection.

        Args:
            address: host:port.
            wire: The connection.
            changed: Called whenever what the server takes may be something else than before.
        """
        self.address = address
        self.problems: dict[str, str | None] = {}
        self.reason = _NOT_ASKED
        self.outstanding_tokens = 0
        self.outstanding_bulk = 0
        self.answers: Counter[str] = Counter()
        self.refusals = 0
        self.failures = 0
        self.wire = wire
        self._changed = changed
        self._pending: dict[asyncio.Future[Outputs], str] = {}
        self._attempts: set[asyncio.Task[None]] = set()
        self._rests: defaultdict[str, _Rest] = defaultdict(_Rest)

    @property
    def state(self) -> State:
        """Up while there is a model that it gets work for."""
        return State.UP if None in self.problems.values() else State.DOWN

    def is_fit(self, model: str) -> bool:
        """Whether it gets work for a model."""
        return self.problems.get(model, "") is None

    def problem(self, model: str) -> str:
        """Why it gets no work for a model."""
        return self.problems.get(model, "it does not have the model" if self.problems else self.reason) or ""

    def is_ready(self, model: str, now: float) -> bool:
        """Whether it may get work for a model now; `now` is the time of the event loop."""
        return self.is_fit(model) and self._rests[model].until <= now

    def offer(self, models: Iterable[str]) -> None:
        """Take down which models it has; a new one must answer first."""
        self.problems = {model: self.problems.get(model, _NOT_ASKED) for model in models}
        self._changed()

    async def send(self, request: EmbedRequest, model: str, tokens: int, call: Call) -> Outputs:
        """One attempt.

        Args:
            request: The request.
            model: What it is for: one that is offered, of which the request may ask a part.
            tokens: Of the request.
            call: What it is part of.

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
        self._pending[pending] = model
        attempt = loop.create_task(self._attempt(pending, request, call.request_id, tokens, bulk))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)
        alarm = loop.call_at(call.deadline, _expire, pending)
        try:
            return await pending
        finally:
            alarm.cancel()
            self._pending.pop(pending, None)

    async def _attempt(
        self, pending: asyncio.Future[Outputs], request: EmbedRequest, request_id: str, tokens: int, bulk: int
    ) -> None:
        """Pass on what comes, unless nobody waits any more; only then the server has less to do."""
        model = self._pending[pending]
        outputs, error = None, Exception()
        try:
            outputs = await self.wire.send(request, WIRE_TIMEOUT_S, request_id)
        except asyncio.CancelledError:
            error = ConnectionFailedError("the gateway stops")
        except Exception as failure:  # whatever it is, whoever waits must know
            error = failure
        self.outstanding_tokens -= tokens
        self.outstanding_bulk -= bulk
        self.answers[model] += 1
        if pending.done():
            pass
        elif outputs is None:
            pending.set_exception(error)
        else:
            self._rests[model].next_s = _FIRST_REST_S
            pending.set_result(outputs)
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

    def take_out(self, reason: str, model: str | None = None, *, abandon: bool = True) -> None:
        """Give it no more work for a model, or for any, and, with `abandon`, give up what it has of that."""
        models = list(self.problems) if model is None else [model]
        if model is None:
            self.reason = reason
        self.failures += any(map(self.is_fit, models))
        self.problems.update(dict.fromkeys(models, reason))
        for pending, its_model in self._pending.items():
            if abandon and its_model in models and not pending.done():
                pending.set_exception(ConnectionFailedError(f"the server {self.address} was taken out: {reason}"))
        self._changed()  # those who wait for room wait for something else now

    def take_back(self, model: str) -> None:
        """Give it work for a model again."""
        self.problems[model] = None
        self._changed()


def _expire(pending: asyncio.Future[Outputs]) -> None:
    if not pending.done():
        pending.set_exception(DeadlineError("no answer within the time that the request had"))
