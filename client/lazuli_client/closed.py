"""What a client holds in place of its transport once it is closed.

Takes anything, raises `ClosedError`, so that a closed client says the same over every protocol.
"""

from typing import Never

from lazuli_client.embeddings import Outputs
from lazuli_client.errors import ClosedError
from lazuli_client.request import EmbedRequest


class ClosedTransport:
    """A `Transport` that is closed."""

    has_streams = True  # so that `open_stream` is called, and says what is the matter

    def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """Not any more."""
        raise ClosedError

    def open_stream(self) -> Never:
        """Not any more."""
        raise ClosedError

    def close(self) -> None:
        """Nothing is left to close."""


class AsyncClosedTransport:
    """An `AsyncTransport` that is closed."""

    has_streams = True

    async def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """Not any more."""
        raise ClosedError

    def open_stream(self) -> Never:
        """Not any more."""
        raise ClosedError

    async def close(self) -> None:
        """Nothing is left to close."""
