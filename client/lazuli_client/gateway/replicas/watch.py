"""Watches a server by small inferences: takes it out when one fails, and back when it answers again.

Takes a replica and what to ask it, changes its state. Triton's own readiness stays at 200 when a model process has
died, or hangs, so only an inference tells.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

from lazuli_client.errors import LazuliError, UnavailableError
from lazuli_client.gateway.replicas.pool import Pool
from lazuli_client.gateway.replicas.replica import Replica, State

# Of the reasons to refuse, those that time alone does not mend.
_IS_AWAY = re.compile(r"stub process|no available versions|stopping|shutting down|not ready", re.IGNORECASE)
_log = logging.getLogger(__name__)


async def watch(
    replica: Replica,
    pool: Pool,
    ask: Callable[[Replica], Awaitable[None]],
    interval_s: float,
    timeout_s: float,
) -> None:
    """Ask for ever.

    Args:
        replica: The server.
        pool: All servers.
        ask: Asks it something, and raises `LazuliError` if the answer is not fit.
        interval_s: From an answer to the next question.
        timeout_s: An answer that takes longer is none, unless the server answers others meanwhile.
    """
    while True:
        reason = await _problem(replica, ask, timeout_s)
        if reason is None and replica.state is State.DOWN:
            _log.info("server %s answers", replica.address)
            replica.take_back()
        elif reason is not None:
            if replica.reason != reason:
                _log.warning("server %s is out: %s", replica.address, reason)
            # What it has is tried elsewhere if there is an elsewhere; else it may still answer.
            replica.take_out(reason, abandon=any(other is not replica for other in pool.fit()))
        await asyncio.sleep(interval_s)


async def _problem(replica: Replica, ask: Callable[[Replica], Awaitable[None]], timeout_s: float) -> str | None:
    question, answers = asyncio.ensure_future(ask(replica)), replica.answers
    try:
        # Not cancelled when it is late: see `WIRE_TIMEOUT_S`.
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(question)
    except TimeoutError:
        question.add_done_callback(_forget)
        if replica.answers > answers:  # busy, not hung
            return None
        return f"no answer to a probe within {timeout_s:g} s"
    except UnavailableError as error:  # one that has too much to do lives
        if _IS_AWAY.search(error.message):
            return str(error)
    except LazuliError as error:
        return str(error)
    except Exception as error:  # whoever watches must not die of it
        _log.exception("the probe of %s failed", replica.address)
        return f"the probe failed: {error!r}"
    return None


def _forget(question: asyncio.Future[None]) -> None:
    if not question.cancelled():
        question.exception()
