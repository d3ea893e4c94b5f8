"""One client's connection to a server: requests are prepared first and sent later, so that only the sending is timed.

Takes texts or ids; returns outputs by name. gRPC goes through tritonclient's stub, HTTP through a plain keep-alive
connection with the bodies that tritonclient makes. Knows nothing of threads or of time.
"""

from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any, Protocol

import grpc
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc

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
    """A connection of its own."""
    return GrpcSender(address) if protocol == "grpc" else HttpSender(address)


def embed_request(texts: list[str]) -> EmbedRequest:
    """Texts for the model `embed`."""
    return text_request("embed", texts, {}, range(len(texts)))


class GrpcSender:
    """Unary calls on one channel, which shares no connection with others of the process."""

    def __init__(self, address: str) -> None:
        """Connect to host:port."""
        options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(address, options=options)
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
        self._stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=_TIMEOUT_S)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


class HttpSender:
    """Binary `infer` over one keep-alive connection."""

    def __init__(self, address: str) -> None:
        """Connect to host:port."""
        self._connection = HTTPConnection(address, timeout=_TIMEOUT_S)

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
        self._connection.request("GET", "/v2/health/live")
        answer = self._connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"HTTP {answer.status} for health/live")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _exchange(self, prepared: Any) -> tuple[bytes, int]:
        path, body, headers = prepared
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"HTTP {answer.status}: {content[:300].decode(errors='replace')}")
        return content, int(answer.headers[_LENGTH_HEADER])


def _read_body(content: bytes, header_length: int) -> Outputs:
    return codec.from_http(triton_http.InferenceServerClient.parse_response_body(content, header_length=header_length))
