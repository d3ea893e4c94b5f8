"""What a client needs of a transport, and the choice of one.

Takes settings, returns a `Transport` or an `AsyncTransport`. A transport sends one request and returns its
outputs or raises a `LazuliError` whose rows are those of the request; it never retries and never splits.
Tests pass their own.
"""

from typing import Protocol

from lazuli_client.embeddings import Outputs
from lazuli_client.errors import UnsupportedError
from lazuli_client.ledger import StreamAnswer
from lazuli_client.request import EmbedRequest
from lazuli_client.settings import Settings


class Stream(Protocol):
    """One bidirectional stream; after an error it is of no more use and must be closed."""

    def send(self, request_id: str, request: EmbedRequest) -> None:
        """Queue a request; does not wait for the server, and leaves it to `receive` to report a failure."""

    def receive(self, timeout_s: float) -> StreamAnswer:
        """The next answer of any request, waiting for it at most `timeout_s`."""

    def close(self) -> None:
        """Cancel what is in flight and end the stream."""


class Transport(Protocol):
    """A synchronous transport.

    Attributes:
        has_streams: Whether `open_stream` works.
    """

    has_streams: bool

    def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """Send a request and wait for its answer; called from several threads at once."""

    def open_stream(self) -> Stream:
        """Open a stream, or raise `UnsupportedError`."""

    def close(self) -> None:
        """Close all connections."""


class AsyncStream(Protocol):
    """The asyncio form of `Stream`."""

    async def send(self, request_id: str, request: EmbedRequest) -> None:
        """Queue a request; leaves it to `receive` to report a failure."""

    async def receive(self, timeout_s: float) -> StreamAnswer:
        """The next answer of any request, waiting for it at most `timeout_s`."""

    async def close(self) -> None:
        """Cancel what is in flight and end the stream."""


class AsyncTransport(Protocol):
    """An asyncio transport; used from one event loop.

    Attributes:
        has_streams: Whether `open_stream` works.
    """

    has_streams: bool

    async def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """Send a request and wait for its answer."""

    def open_stream(self) -> AsyncStream:
        """Open a stream, or raise `UnsupportedError`."""

    async def close(self) -> None:
        """Close all connections."""


def connect(settings: Settings) -> Transport:
    """The synchronous transport for the protocol of `settings`; connects on first use."""
    # Imported here: nobody need pay for the other protocol.
    if settings.protocol == "grpc":
        from lazuli_client.grpc_transport import GrpcTransport

        return GrpcTransport(settings.address, settings.tls)
    from lazuli_client.http_transport import HttpTransport

    return HttpTransport(settings.address, settings.tls)


def connect_async(settings: Settings) -> AsyncTransport:
    """The asyncio transport for the protocol of `settings`; call it inside the event loop."""
    from lazuli_client.aio_transport import AioGrpcTransport, AioHttpTransport

    if settings.protocol == "grpc":
        return AioGrpcTransport(settings.address, settings.tls)
    return AioHttpTransport(settings.address, settings.max_in_flight, settings.tls)


def no_streams_over_http() -> UnsupportedError:
    """The error for `embed_iter` over HTTP."""
    return UnsupportedError('embed_iter needs gRPC streaming: use protocol="grpc" and the gRPC port (8001)')
