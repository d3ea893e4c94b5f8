"""How long a chunk waits for a server."""

import asyncio


class Patience:
    """The wait of one chunk.

    It is limited while no server would take the chunk, and only by the request's deadline while there is one that is at
    work and has no room yet.
    """

    def __init__(self, queue_s: float, deadline: float) -> None:
        """Begin to wait.

        Args:
            queue_s: How long to wait for a server that takes the chunk.
            deadline: Time of the event loop at which the request's time is over.
        """
        self._queue_s = queue_s
        self._deadline = deadline
        self.renew()

    def renew(self) -> None:
        """Begin anew."""
        self._until = asyncio.get_running_loop().time() + self._queue_s

    def limit(self, *, for_room: bool) -> float:
        """Time of the event loop at which to give up.

        Args:
            for_room: Whether what the chunk waits for is room at a server that is at work.
        """
        if for_room:
            self.renew()
            return self._deadline
        return min(self._until, self._deadline)
