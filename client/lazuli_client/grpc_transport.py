"""The synchronous gRPC transport: unary calls, and a bidirectional stream.

Takes requests, returns outputs; knows channels, threads and status codes, but not how messages are laid out
(`codec.py`).
"""

import queue
import threading
from typing import Any

import grpc  # type: ignore[import-untyped, unused-ignore]
from tritonclient.grpc import service_pb2_grpc

from lazuli_client import codec, forking
from lazuli_client.embeddings import Outputs
from lazuli_client.errors import (
    ClosedError,
    ConnectionFailedError,
    DeadlineError,
    LazuliError,
    ServerError,
    UnsupportedError,
)
from lazuli_client.ledger import StreamAnswer
from lazuli_client.request import EmbedRequest
from lazuli_client.tls import Tls

CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # gRPC's own pauses grow to two minutes; a client that retries for seconds would never see a server come
    # back. The minimum is left at its default of 20 s: it limits the time to connect, not the pauses, and a
    # server that is loaded or far away needs it. A request's own deadline holds all the same.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


# How long the server gets to finish a stream that takes no more requests.
END_TIMEOUT_S = 3.0


class GrpcTransport:
    """One channel, which all threads share; made at the first use, so that a client may be made before a fork."""

    has_streams = True

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        self._address = address
        self._tls = tls
        self._lock = threading.Lock()
        self._channel: Any = None
        self._stub: Any = None
        self._is_closed = False
        self._is_of_parent = False
        forking.watch(self)

    def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """One unary call."""
        message = codec.to_grpc(request)
        stub = self._connected()
        try:
            response = stub.ModelInfer(message, timeout=timeout_s)
        except grpc.RpcError as error:
            raise codec.from_grpc_error(error) from error
        except ValueError as error:  # another thread has closed the channel
            raise ClosedError from error
        return codec.from_grpc(response)

    def open_stream(self) -> "GrpcStream":
        """A new stream; there may be several at once."""
        stub = self._connected()
        try:
            return GrpcStream(stub)
        except ValueError as error:
            raise ClosedError from error

    def close(self) -> None:
        """Close the channel, which cancels what is in flight."""
        with self._lock:
            self._is_closed = True
            if self._channel is not None and not self._is_of_parent:
                self._channel.close()

    def after_fork(self) -> None:
        """Leave a channel that was in use to the parent: gRPC's threads and sockets do not survive a fork."""
        self._lock = threading.Lock()
        self._is_of_parent = self._channel is not None

    def _connected(self) -> Any:
        if self._is_of_parent:
            raise UnsupportedError(
                "this client has used gRPC in the process that this one was forked from; make a client of your own "
                "in each process, before the first use in the parent or with the start method `spawn`, or use HTTP"
            )
        with self._lock:
            if self._is_closed:
                raise ClosedError
            if self._channel is None:
                self._channel = self._open()
                self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
            return self._stub

    def _open(self) -> Any:
        if self._tls is None:
            return grpc.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        options = [*CHANNEL_OPTIONS, *self._tls.grpc_options()]
        return grpc.secure_channel(self._address, self._tls.grpc_credentials(), options=options)


class GrpcStream:
    """One `ModelStreamInfer` call.

    A thread of its own reads the answers, because waiting on the call itself cannot be limited in time: a
    server whose model process died never answers.
    """

    def __init__(self, stub: Any) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[StreamAnswer | LazuliError] = queue.SimpleQueue()
        self._call = stub.ModelStreamInfer(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read, name="lazuli-stream", daemon=True)
        self._reader.start()

    def send(self, request_id: str, request: EmbedRequest) -> None:
        """Queue a request for gRPC's sending thread."""
        self._requests.put(codec.to_grpc(request, request_id, stream=True))

    def receive(self, timeout_s: float) -> StreamAnswer:
        """The next answer."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise DeadlineError(f"no answer in the stream within {timeout_s:g} s") from None
        if isinstance(answer, LazuliError):
            raise answer
        return answer

    def close(self) -> None:
        """End the call, and with it both threads.

        The server may finish what it was asked, which is little and would be computed anyway. Cancelled at once,
        Triton 24.10 can keep a request for ever: it then takes its whole exit timeout to stop.
        """
        self._requests.put(None)
        self._reader.join(timeout=END_TIMEOUT_S)
        self._call.cancel()
        self._reader.join(timeout=5)

    def _read(self) -> None:
        try:
            for response in self._call:
                self._answers.put(codec.from_grpc_stream(response))
            self._answers.put(ConnectionFailedError("the server closed the stream"))
        except grpc.RpcError as error:
            self._answers.put(codec.from_grpc_error(error))
        except Exception as error:  # an undecodable answer must reach the consumer, not just end this thread
            self._answers.put(ServerError(f"the server's answer cannot be read: {error!r}"))
