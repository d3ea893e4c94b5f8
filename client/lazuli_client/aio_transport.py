"""The asyncio transports, gRPC and HTTP.

Takes requests, returns outputs; the messages are `codec.py`'s, as in the synchronous transports. Must be made
inside the event loop that uses them.
"""

import asyncio
import contextlib
from typing import Any

import aiohttp
import grpc  # type: ignore[import-untyped, unused-ignore]
from tritonclient.grpc import service_pb2_grpc

from lazuli_client import codec
from lazuli_client.embeddings import Outputs
from lazuli_client.errors import ConnectionFailedError, DeadlineError
from lazuli_client.grpc_transport import CHANNEL_OPTIONS, END_TIMEOUT_S
from lazuli_client.http_message import from_answer, to_post
from lazuli_client.ledger import StreamAnswer
from lazuli_client.request import EmbedRequest
from lazuli_client.tls import Tls
from lazuli_client.transport import AsyncStream, no_streams_over_http


class AioGrpcTransport:
    """One channel."""

    has_streams = True

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        self._channel = (
            grpc.aio.secure_channel(address, tls.grpc_credentials(), options=[*CHANNEL_OPTIONS, *tls.grpc_options()])
            if tls
            else grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        )
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """One unary call."""
        try:
            return codec.from_grpc(await self._stub.ModelInfer(codec.to_grpc(request), timeout=timeout_s))
        except grpc.RpcError as error:
            raise codec.from_grpc_error(error) from error

    def open_stream(self) -> "AioGrpcStream":
        """A new stream; there may be several at once."""
        return AioGrpcStream(self._stub)

    async def close(self) -> None:
        """Close the channel, which cancels what is in flight."""
        await self._channel.close()


class AioGrpcStream:
    """One `ModelStreamInfer` call."""

    def __init__(self, stub: Any) -> None:
        self._call = stub.ModelStreamInfer()

    async def send(self, request_id: str, request: EmbedRequest) -> None:
        """Write a request."""
        # A call that has ended takes no more requests; why it ended is what the next `receive` raises.
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self._call.write(codec.to_grpc(request, request_id, stream=True))

    async def receive(self, timeout_s: float) -> StreamAnswer:
        """The next answer."""
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._call.read()
        except TimeoutError:
            raise DeadlineError(f"no answer in the stream within {timeout_s:g} s") from None
        except grpc.RpcError as error:
            raise codec.from_grpc_error(error) from error
        if response is grpc.aio.EOF:
            raise ConnectionFailedError("the server closed the stream")
        return codec.from_grpc_stream(response)

    async def close(self) -> None:
        """End the call, as `GrpcStream.close` does."""
        if self._call.done():  # a read that ran into its timeout has cancelled the call
            return
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._call.done_writing()
                while await self._call.read() is not grpc.aio.EOF:
                    pass
        self._call.cancel()


class AioHttpTransport:
    """A session of aiohttp, with as many connections as requests may be in flight."""

    has_streams = False

    def __init__(self, address: str, max_connections: int, tls: Tls | None = None) -> None:
        self._address = address
        self._is_tls = tls is not None
        self._url = f"{'https' if tls else 'http'}://{address}"
        # No timeout of its own: `send` has one for the whole exchange.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls.ssl_context() if tls else True, limit=max_connections),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """One POST to `/v2/models/<model>/infer`."""
        path, body, headers = to_post(request)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.post(self._url + path, data=body, headers=headers, allow_redirects=False) as response,
            ):
                raw = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise codec.from_http_error(error, self._address, timeout_s, is_tls=self._is_tls) from error
        return from_answer(response.status, response.headers, raw)

    def open_stream(self) -> AsyncStream:
        """Not over HTTP."""
        raise no_streams_over_http()

    async def close(self) -> None:
        """Close the connections; a request that is under way fails."""
        await self._session.close()
