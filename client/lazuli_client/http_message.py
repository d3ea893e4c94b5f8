"""Requests and answers over HTTP, for the synchronous and the asyncio transport.

Takes an `EmbedRequest`, returns what to post; takes status, headers and body, returns outputs or raises the typed
error. tritonclient lays out the messages. Does no input or output.
"""

import json
from collections.abc import Mapping
from urllib.parse import quote

from tritonclient.http import InferenceServerClient

from lazuli_client import codec
from lazuli_client.embeddings import Outputs
from lazuli_client.errors import LazuliError, ServerError, from_http_status
from lazuli_client.quoting import shown
from lazuli_client.request import EmbedRequest

_JSON_BYTES = "Inference-Header-Content-Length"


def to_post(request: EmbedRequest) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers of a request."""
    body, json_bytes = InferenceServerClient.generate_request_body(
        codec.to_http(request), parameters=request.sent_parameters
    )
    headers = {} if json_bytes is None else {_JSON_BYTES: str(json_bytes)}
    return f"/v2/models/{quote(request.model)}/infer", body, headers


def from_answer(status: int, headers: Mapping[str, str], raw: bytes) -> Outputs:
    """The outputs in an answer.

    Raises:
        LazuliError: The error that the status stands for.
        ServerError: If it is no answer of Triton's; the message shows what was received.
    """
    if status != 200:
        raise _failure(status, raw)
    try:
        return codec.from_http(
            InferenceServerClient.parse_response_body(raw, header_length=_json_bytes(headers, len(raw)))
        )
    except Exception as error:  # whatever the parsers make of bytes that are not for them
        raise ServerError(
            f"the answer is not Triton's ({shown(f'{type(error).__name__}: {error}')}); received: {shown(raw)}",
            code=str(status),
        ) from error


def _json_bytes(headers: Mapping[str, str], most: int) -> int | None:
    value = headers.get(_JSON_BYTES)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and int(value) <= most):
        raise ValueError(f"{_JSON_BYTES} is {value!r}, with a body of {most} bytes")
    return int(value)


def _failure(status: int, raw: bytes) -> LazuliError:
    try:
        message = json.loads(raw)["error"]
    except (ValueError, KeyError, TypeError):
        message = None
    if isinstance(message, str):
        return from_http_status(status, message)
    message = f"HTTP status {status}" + (f": {shown(raw)}" if raw else "")
    # Triton says what is wrong with an input; a bare 400 is somebody else's.
    return ServerError(message, code=str(status)) if status == 400 else from_http_status(status, message)
