"""How each API tells an error, and which API a path belongs to.

Takes an `ApiError`, returns a response. Clients of an API know its shape only.
"""

from collections.abc import Callable

import orjson
from starlette.responses import Response

from lazuli_client.gateway.errors import ApiError

JSON = "application/json"


def openai_error(error: ApiError) -> object:
    """OpenAI's."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.field, "code": error.kind}}


def cohere_error(error: ApiError) -> object:
    """Cohere's."""
    return {"message": error.message}


def tei_error(error: ApiError) -> object:
    """That of text-embeddings-inference."""
    kinds = {400: "Validation", 413: "Validation", 415: "Validation", 429: "Overloaded", 503: "Unhealthy"}
    return {"error": error.message, "error_type": kinds.get(error.status, "Backend")}


def shape_of(path: str) -> Callable[[ApiError], object]:
    """The shape for a path, also one that there is not."""
    if path.startswith("/v1/"):
        return openai_error
    return cohere_error if path.startswith("/v2/") else tei_error


def error_response(error: ApiError, path: str) -> Response:
    """The answer to a request that failed."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status == 415:
        headers["Accept-Encoding"] = "identity"
    if error.status == 408:  # the rest of the body may still come
        headers["Connection"] = "close"
    return Response(orjson.dumps(shape_of(path)(error)), error.status, headers, JSON)
