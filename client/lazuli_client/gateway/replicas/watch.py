"""Watches a server by small inferences: takes a model out when one fails, and back when it answers again.

Takes a replica and what to ask it, changes its state. Triton's own readiness stays at 200 when a model process has
died, or hangs, so only an inference tells; and it tells of its model only.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable
from typing import Protocol

from lazuli_client.errors import LazuliError, UnavailableError
from lazuli_client.gateway.replicas.pool import Pool
from lazuli_client.gateway.replicas.replica import Replica, State

# Of the reasons to refuse, those that time alone does not mend.
_IS_AWAY = re.compile(r"stub process|no available versions|stopping|shutting down|not ready", re.IGNORECASE)
# Models may be added to a server that is well, and removed.
_DISCOVERY_INTERVAL_S = 30.0
_log = logging.getLogger(__name__)


class Questions(Protocol):
    """What a server is asked; each raises `LazuliError` if the answer is not fit."""

    async def discover(self, replica: Replica) -> None:
        """Take down which models it has."""

    async def ask(self, replica: Replica, model: str) -> None:
        """A small inference."""


class Watch:
    """The watch over one server."""

    def __init__(self, replica: Replica, pool: Pool, questions: Questions, interval_s: float, timeout_s: float) -> None:
        """Prepare.

        Args:
            replica: The server.
            pool: All servers.
            questions: What to ask it.
            interval_s: From an answer to the next question.
            timeout_s: An answer that takes longer is none, unless the model answers others meanwhile.
        """
        self._replica = replica
        self._pool = pool
        self._questions = questions
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._told = ""
        self._discovered = float("-inf")

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            if not self._is_doubtful() or await self._is_found():
                await asyncio.gather(*map(self._examine, list(self._replica.problems)))
            await asyncio.sleep(self._interval_s)

    def _is_doubtful(self) -> bool:
        """Whether it may be another server than before, or have other models."""
        known = self._replica.problems
        age_s = asyncio.get_running_loop().time() - self._discovered
        return age_s >= _DISCOVERY_INTERVAL_S or not known or any(known.values())

    async def _is_found(self) -> bool:
        """Whether the server tells its models; if not, all of them are out."""
        replica = self._replica
        reason = await self._problem(self._questions.discover(replica), None)
        if reason is not None:
            replica.take_out(reason, abandon=len(self._pool.fit()) > 1)
            self._tell(f"server {replica.address} is out: {reason}", logging.WARNING)
            return False
        self._discovered = asyncio.get_running_loop().time()
        return True

    async def _examine(self, model: str) -> None:
        """Ask one model, and give it work or not."""
        replica, was_up = self._replica, self._replica.state
        reason = await self._problem(self._questions.ask(replica, model), model)
        if reason is None:
            if not replica.is_fit(model):
                replica.take_back(model)
                what = "answers" if was_up is State.DOWN else f"has {model} again"
                self._tell(f"server {replica.address} {what}", logging.INFO)
            return
        # What it has is tried elsewhere if there is an elsewhere; else it may still answer.
        replica.take_out(reason, model, abandon=any(other is not replica for other in self._pool.fit(model)))
        what = "is out" if replica.state is State.DOWN else f"has no {model}"
        self._tell(f"server {replica.address} {what}: {reason}", logging.WARNING)

    def _tell(self, line: str, level: int) -> None:
        """Log what was not said last."""
        if line != self._told:
            _log.log(level, line)
        self._told = line

    async def _problem(self, asking: Awaitable[None], model: str | None) -> str | None:
        """Why an answer is not fit; None if it is."""
        question, answers = asyncio.ensure_future(asking), self._answers(model)
        try:
            # Not cancelled when it is late: see `WIRE_TIMEOUT_S`.
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(question)
        except TimeoutError:
            question.add_done_callback(_forget)
            if self._answers(model) > answers:  # busy, not hung
                return None
            return f"no answer to a probe within {self._timeout_s:g} s"
        except UnavailableError as error:  # one that has too much to do lives
            if _IS_AWAY.search(error.message):
                return str(error)
        except LazuliError as error:
            return str(error)
        except Exception as error:  # whoever watches must not die of it
            _log.exception("the probe of %s failed", self._replica.address)
            return f"the probe failed: {error!r}"
        return None

    def _answers(self, model: str | None) -> int:
        return self._replica.answers.total() if model is None else self._replica.answers[model]


def _forget(question: asyncio.Future[None]) -> None:
    if not question.cancelled():
        question.exception()
