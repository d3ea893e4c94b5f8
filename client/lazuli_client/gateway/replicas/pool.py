"""The servers together: which one gets the next chunk, and who waits for room.

Takes the tokens of a chunk, returns a replica that may have it. Sends nothing.
"""

import asyncio
import random
from collections.abc import Collection, Sequence

from lazuli_client.errors import ConnectionFailedError, LazuliError, UnavailableError
from lazuli_client.gateway.replicas.patience import Patience
from lazuli_client.gateway.replicas.replica import Replica, State


class Pool:
    """All replicas.

    Attributes:
        replicas: The servers.
    """

    def __init__(self, bulk_tokens: int) -> None:
        """Start without servers; `add` them.

        Args:
            bulk_tokens: Tokens of bulk that one server has at a time; a larger chunk goes alone.
        """
        self.replicas: list[Replica] = []
        self._bulk_tokens = bulk_tokens
        self._waiters: list[asyncio.Future[None]] = []

    async def acquire(
        self,
        model: str,
        tokens: int,
        *,
        is_bulk: bool,
        avoid: Collection[Replica],
        patience: Patience,
        refusal: LazuliError | None = None,
    ) -> Replica:
        """Wait for a server that may have a chunk: of several, the one with the fewest tokens to do.

        Args:
            model: What it is for.
            tokens: Tokens of the chunk.
            is_bulk: Whether it leaves room for others.
            avoid: Servers that failed with it; one of them is taken only where there is no other.
            patience: How long to wait.
            refusal: What a server said that refused the chunk, for the error.

        Raises:
            UnavailableError: If every server had too much to do.
            ConnectionFailedError: If there was none.
        """
        while True:
            ready = self._ready(model, avoid)
            with_room = [replica for replica in ready if self._has_room(replica, tokens, is_bulk)]
            if with_room:
                return _least_busy(with_room)
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(patience.limit(for_room=bool(ready))):
                    await waiter
            except TimeoutError:
                raise self._nobody(model, refusal) from None

    def changed(self) -> None:
        """Let those who wait look again, in their order."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fit(self, model: str | None = None) -> Sequence[Replica]:
        """The servers that get work for a model, or for any."""
        if model is None:
            return [replica for replica in self.replicas if replica.state is State.UP]
        return [replica for replica in self.replicas if replica.is_fit(model)]

    async def close(self) -> None:
        """Close the connections; what is under way fails."""
        for replica in self.replicas:
            replica.take_out("the gateway stops")
            await replica.wire.close()

    def _ready(self, model: str, avoid: Collection[Replica]) -> list[Replica]:
        others = [replica for replica in self.replicas if replica not in avoid] or self.replicas
        now = asyncio.get_running_loop().time()
        return [replica for replica in others if replica.is_ready(model, now)]

    def _has_room(self, replica: Replica, tokens: int, is_bulk: bool) -> bool:
        room = self._bulk_tokens - replica.outstanding_bulk
        return not is_bulk or tokens <= room or replica.outstanding_bulk == 0

    def _nobody(self, model: str, refusal: LazuliError | None) -> LazuliError:
        if fit := self.fit(model):
            said = f": {refusal}" if refusal else ""
            return UnavailableError(f"{'all servers have' if len(fit) > 1 else 'the server has'} too much to do{said}")
        reasons = "; ".join(f"{replica.address}: {replica.problem(model)}" for replica in self.replicas)
        return ConnectionFailedError(f"no server is ready for {model} ({reasons})")


def _least_busy(replicas: Sequence[Replica]) -> Replica:
    if len(replicas) == 1:
        return replicas[0]
    least = min(replica.outstanding_tokens for replica in replicas)
    # By chance among equals: several gateways must not all begin with the first.
    return random.choice([replica for replica in replicas if replica.outstanding_tokens == least])
