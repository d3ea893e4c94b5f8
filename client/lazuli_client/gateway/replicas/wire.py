"""The connection to a server.

Takes requests, returns outputs, like `AsyncTransport`; passes on request ids.
"""

from typing import Protocol

import grpc  # type: ignore[import-untyped, unused-ignore]
from tritonclient.grpc import service_pb2

from lazuli_client import codec
from lazuli_client.aio_transport import AioGrpcTransport
from lazuli_client.embeddings import Outputs
from lazuli_client.request import EmbedRequest


class Wire(Protocol):
    """What the gateway needs of a connection; tests have their own."""

    async def send(self, request: EmbedRequest, timeout_s: float, request_id: str = "") -> Outputs:
        """One unary call."""

    async def tensors_of(self, model: str, timeout_s: float) -> tuple[frozenset[str], frozenset[str]]:
        """Names of the inputs and outputs of a model."""

    async def close(self) -> None:
        """Close the connection."""


class GrpcWire(AioGrpcTransport):
    """One gRPC channel."""

    async def send(self, request: EmbedRequest, timeout_s: float, request_id: str = "") -> Outputs:
        """One unary call."""
        message = codec.to_grpc(request, request_id)
        try:
            return codec.from_grpc(await self._stub.ModelInfer(message, timeout=timeout_s))
        except grpc.RpcError as error:
            raise codec.from_grpc_error(error) from error

    async def tensors_of(self, model: str, timeout_s: float) -> tuple[frozenset[str], frozenset[str]]:
        """Names of the inputs and outputs of a model.

        Raises:
            LazuliError: If there is no such model, or no server.
        """
        try:
            found = await self._stub.ModelMetadata(service_pb2.ModelMetadataRequest(name=model), timeout=timeout_s)
        except grpc.RpcError as error:
            raise codec.from_grpc_error(error) from error
        return frozenset(one.name for one in found.inputs), frozenset(one.name for one in found.outputs)
