"""One client's connection to a server: requests are prepared first and sent later, so that only the sending is timed.

Takes texts or ids; returns outputs by name. gRPC goes through tritonclient's stub, HTTP through a plain keep-alive
connection with the bodies that tritonclient makes. Knows nothing of threads or of time.
"""

import queue
from collections.abc import Callable
from typing import Any, Protocol

import grpc  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc

from clients.keep_alive import KeepAlive
from lazuli_client import codec
from lazuli_client.embeddings import Outputs
from lazuli_client.grpc_transport import CHANNEL_OPTIONS
from lazuli_client.request import EmbedRequest, text_request

PROTOCOLS = ("grpc", "http")
_TIMEOUT_S = 300.0
_LENGTH_HEADER = "Inference-Header-Content-Length"


class Sender(Protocol):
    """What both protocols can do."""

    def prepare(self, request: EmbedRequest) -> Any:
        """Make what `send` takes."""

    def send(self, prepared: Any) -> Outputs:
        """Send and wait for the answer; raises if it is an error."""

    def replay(self, request: EmbedRequest) -> Callable[[], object]:
        """Send once; returns the client's own work on this request and its answer, without the way between."""

    def ping(self) -> None:
        """Ask whether the server lives: the way there and back without a model."""

    def close(self) -> None:
        """Close the connection."""


def connect(protocol: str, address: str) -> Sender:
    """A connection of its own.

    Args:
        protocol: `grpc`, `http`, or `stream` for a gRPC stream.
        address: host:port.
    """
    senders: dict[str, Callable[[str], Sender]] = {"grpc": GrpcSender, "http": HttpSender, "stream": StreamSender}
    return senders[protocol](address)


def embed_request(texts: list[str]) -> EmbedRequest:
    """Texts for the model `embed`."""
    return text_request("embed", texts, {}, range(len(texts)))


class GrpcSender:
    """Unary calls on one channel, which shares no connection with others of the process."""

    def __init__(self, address: str) -> None:
        """Connect to host:port."""
        self._channel = _channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def prepare(self, request: EmbedRequest) -> Any:
        """A `ModelInferRequest`."""
        return codec.to_grpc(request)

    def send(self, prepared: Any) -> Outputs:
        """`ModelInfer`."""
        return codec.from_grpc(self._stub.ModelInfer(prepared, timeout=_TIMEOUT_S))

    def replay(self, request: EmbedRequest) -> Callable[[], object]:
        """Make and write the request, read the answer."""
        content = self._stub.ModelInfer(self.prepare(request), timeout=_TIMEOUT_S).SerializeToString()

        def work() -> object:
            self.prepare(request).SerializeToString()
            return codec.from_grpc(service_pb2.ModelInferResponse.FromString(content))

        return work

    def ping(self) -> None:
        """`ServerLive`."""
        _ping(self._stub)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


class StreamSender:
    """One `ModelStreamInfer` call: requests go in one after the other, the parts of each answer are put together."""

    def __init__(self, address: str) -> None:
        """Connect to host:port."""
        self._channel = _channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = self._stub.ModelStreamInfer(iter(self._requests.get, None))

    def prepare(self, request: EmbedRequest) -> Any:
        """A `ModelInferRequest` that asks for a mark at its end."""
        return codec.to_grpc(request, stream=True)

    def send(self, prepared: Any) -> Outputs:
        """All parts until the mark, in the order of the texts."""
        self._requests.put(prepared)
        return _in_order(self._receive())

    def replay(self, request: EmbedRequest) -> Callable[[], object]:
        """Make and write the request; the answer comes in parts, which are read as they come."""
        return lambda: self.prepare(request).SerializeToString()

    def ping(self) -> None:
        """`ServerLive`, beside the stream."""
        _ping(self._stub)

    def close(self) -> None:
        """End the stream, then the channel."""
        self._requests.put(None)
        for _ in self._call:
            pass
        self._channel.close()

    def _receive(self) -> list[Outputs]:
        parts = []
        for response in self._call:
            answer = codec.from_grpc_stream(response)
            if answer.error is not None:
                raise answer.error
            if answer.outputs:
                parts.append(answer.outputs)
            if answer.is_final:
                return parts
        raise RuntimeError("the server closed the stream")


class HttpSender:
    """Binary `infer` over one keep-alive connection."""

    def __init__(self, address: str) -> None:
        """Connect to host:port."""
        self._connection = KeepAlive(address)

    def prepare(self, request: EmbedRequest) -> Any:
        """Path, body and headers."""
        body, json_size = triton_http.InferenceServerClient.generate_request_body(codec.to_http(request))
        return f"/v2/models/{request.model}/infer", body, {_LENGTH_HEADER: str(json_size)}

    def send(self, prepared: Any) -> Outputs:
        """One POST."""
        return _read_body(*self._exchange(prepared))

    def replay(self, request: EmbedRequest) -> Callable[[], object]:
        """Make the body, read the answer's."""
        content, header_length = self._exchange(self.prepare(request))

        def work() -> object:
            self.prepare(request)
            return _read_body(content, header_length)

        return work

    def ping(self) -> None:
        """`health/live`."""
        self._connection.get("/v2/health/live")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _exchange(self, prepared: Any) -> tuple[bytes, int]:
        content, headers = self._connection.post(*prepared)
        return content, int(headers[_LENGTH_HEADER])


def _channel(address: str) -> grpc.Channel:
    return grpc.insecure_channel(address, options=[*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)])


def _ping(stub: Any) -> None:
    """`ServerLive`.

    Raises:
        LazuliError: If there is no answer; its message is one line.
    """
    try:
        stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=_TIMEOUT_S)
    except grpc.RpcError as error:
        raise codec.from_grpc_error(error) from error


def _in_order(parts: list[Outputs]) -> Outputs:
    merged = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(merged.pop("index")[:, 0])
    return {name: values[order] for name, values in merged.items()}


def _read_body(content: bytes, header_length: int) -> Outputs:
    return codec.from_http(triton_http.InferenceServerClient.parse_response_body(content, header_length=header_length))
