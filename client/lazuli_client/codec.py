"""Between this package's plain tensors and the messages of the two protocols, in both directions.

Takes an `EmbedRequest` and returns what gRPC or tritonclient's HTTP client sends; takes an answer and returns
outputs by name; takes a failure and returns a typed error. Does no input or output, so one codec serves the
synchronous and the asynchronous transports.

For gRPC the messages are built here on tritonclient's generated classes and not with its client class: that
class drops the id of a failed request of a stream, so a caller could not be told which request failed.
"""

import functools
import re
import struct
from typing import Any

import numpy as np
import tritonclient.http as triton_http
from numpy.typing import NDArray
from tritonclient.grpc import InferResult as GrpcResult
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, np_to_triton_dtype, triton_to_np_dtype

from lazuli_client.embeddings import Outputs
from lazuli_client.errors import (
    ConnectionFailedError,
    DeadlineError,
    LazuliError,
    ServerError,
    from_grpc_status,
    from_stream_message,
    tls_trouble,
)
from lazuli_client.ledger import StreamAnswer
from lazuli_client.quoting import shown
from lazuli_client.request import EmbedRequest

# What a plain connection meets at a port of TLS, and one with TLS at a plain port: an alert in place of a status line,
# or an end.
_OTHER_END = re.compile(r"\\x15\\+x03|UNEXPECTED_EOF|connection reset|server disconnected", re.IGNORECASE)

# Both look through all types, and an answer of one text has three tensors.
_datatype_of = functools.cache(np_to_triton_dtype)
_dtype_of = functools.cache(triton_to_np_dtype)


def to_grpc(request: EmbedRequest, request_id: str = "", *, stream: bool = False) -> Any:
    """A `ModelInferRequest`; with `stream`, the server is asked to mark the end of the request."""
    message = service_pb2.ModelInferRequest(model_name=request.model, id=request_id)
    for name, values in request.tensors.items():
        message.inputs.add(name=name, datatype=_datatype_of(values.dtype), shape=values.shape)
        message.raw_input_contents.append(_to_raw(values))
    for name, value in request.sent_parameters.items():
        _set_parameter(message.parameters[name], value)
    if stream:
        message.parameters["triton_enable_empty_final_response"].bool_param = True
    return message


def _to_raw(values: NDArray[Any]) -> bytes:
    if values.dtype != np.object_:
        return values.tobytes()
    # BYTES on the wire: each element is its length in 4 bytes, little-endian, and then its bytes.
    return b"".join(struct.pack("<I", len(value)) + value for value in values.reshape(-1))


def _set_parameter(parameter: Any, value: str | int | bool) -> None:
    if isinstance(value, bool):  # before int: bool is one
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    else:
        parameter.string_param = value


def from_grpc(response: Any) -> Outputs:
    """The outputs of a `ModelInferResponse`.

    Raises:
        ServerError: If it cannot be read.
    """
    outputs, contents = response.outputs, response.raw_output_contents
    try:
        if len(contents) == len(outputs):
            return {output.name: _from_raw(output, raw) for output, raw in zip(outputs, contents, strict=True)}
        result = GrpcResult(response)
        return {output.name: result.as_numpy(output.name) for output in outputs}
    except Exception as error:  # whatever the parsers make of an answer that breaks the contract
        raise ServerError(f"the server's answer cannot be read: {shown(repr(error))}") from error


def _from_raw(output: Any, raw: bytes) -> NDArray[Any]:
    dtype = _dtype_of(output.datatype)
    values = deserialize_bytes_tensor(raw) if dtype is np.object_ else np.frombuffer(raw, dtype)
    return values.reshape(output.shape)  # type: ignore[no-any-return, unused-ignore]


def from_grpc_stream(response: Any) -> StreamAnswer:
    """One `ModelStreamInferResponse`: some rows, an error, or just the mark that the request has ended."""
    inner = response.infer_response
    is_final = inner.parameters["triton_final_response"].bool_param if inner.parameters else False
    if response.error_message:
        return StreamAnswer(inner.id, {}, is_final, from_stream_message(response.error_message))
    return StreamAnswer(inner.id, from_grpc(inner), is_final, None)


def from_grpc_error(error: Any) -> LazuliError:
    """The typed error for a `grpc.RpcError`."""
    return from_grpc_status(error.code().name, error.details() or "")


def to_http(request: EmbedRequest) -> list[Any]:
    """The inputs as tritonclient's HTTP `InferInput` objects, binary."""
    inputs = []
    for name, values in request.tensors.items():
        tensor = triton_http.InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype))
        tensor.set_data_from_numpy(values)
        inputs.append(tensor)
    return inputs


def from_http(result: Any) -> Outputs:
    """The outputs of tritonclient's HTTP `InferResult`."""
    return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


def from_http_error(error: Exception, address: str, timeout_s: float, *, is_tls: bool = False) -> LazuliError:
    """The typed error for an HTTP exchange that broke off.

    Args:
        error: What urllib3, aiohttp or a socket raised.
        address: host:port, for the message.
        timeout_s: Limit of the exchange, for the message.
        is_tls: Whether the client encrypts.
    """
    if isinstance(error, TimeoutError):
        return DeadlineError(f"no answer from {address} within {timeout_s:g} s")
    words = shown(str(error), 500) if str(error) else type(error).__name__
    message = f"connection to {address} failed: {words}"
    return tls_trouble(message) or ConnectionFailedError(message + _tls_hint(error, words, is_tls))


def _tls_hint(error: Exception, words: str, is_tls: bool) -> str:
    """What to look at when the two ends may not agree on TLS."""
    if not (any(isinstance(e, ConnectionResetError) for e in (error, error.__cause__)) or _OTHER_END.search(words)):
        return ""
    return "; perhaps the port does not speak TLS" if is_tls else "; perhaps the port wants TLS"
