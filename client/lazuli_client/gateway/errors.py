"""Errors of the gateway, each with its HTTP status, and what the client's errors become.

Takes a `LazuliError`, returns an `ApiError`. Does not know the shapes in which the APIs tell errors: `apis/shapes.py`.
"""

import re
from collections.abc import Mapping

from lazuli_client.errors import (
    ConnectionFailedError,
    DeadlineError,
    InvalidInputError,
    LazuliError,
    ModelNotFoundError,
    UnavailableError,
    UnsupportedError,
)

# Triton puts the request's id before what a model says, and the step of an ensemble.
_FRAME = re.compile(r"^(in ensemble '[^']*', )?(\[request id: [^\]]*\] )?")
_FIELD = re.compile(r"^(?P<field>\w+)(?=[\[:])")
_ADVICE = re.compile(
    r"(?P<before>; | or )pass (?P<option>truncate=\"end\"|force_dimensions=true)(?P<after> to [\w ]+)?"
)
_RETRY_AFTER_S = 1


class ApiError(Exception):
    """A request that is answered by an error.

    Attributes:
        status: HTTP status.
        message: What is wrong.
        kind: A word for programs, such as `invalid_request_error`.
        field: Field of the request that is at fault, if one is.
        retry_after_s: When to try again, if that makes sense.
    """

    def __init__(
        self, status: int, message: str, kind: str, *, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.field = field
        self.retry_after_s = retry_after_s


def invalid(message: str, field: str | None = None) -> ApiError:
    """The caller's fault."""
    return ApiError(400, message, "invalid_request_error", field=field)


def too_large(message: str, field: str | None = None) -> ApiError:
    """More than the gateway takes."""
    return ApiError(413, message, "request_too_large", field=field)


def not_decoded(encoding: bytes) -> ApiError:
    """A compressed body."""
    shown = encoding[:40].decode("latin-1")
    return ApiError(
        415, f"Content-Encoding: {shown!r} is not taken; send the body uncompressed", "unsupported_encoding"
    )


def fault() -> ApiError:
    """The gateway's own."""
    return ApiError(500, "the gateway failed; its log says why", "server_error")


def stopping() -> ApiError:
    """The gateway stops, and what it was asked has taken longer than it waits."""
    return ApiError(503, "the gateway stops; try again", "stopping", retry_after_s=_RETRY_AFTER_S)


def overloaded(message: str, retry_after_s: int = _RETRY_AFTER_S) -> ApiError:
    """Too much for now."""
    return ApiError(429, message, "rate_limit_exceeded", retry_after_s=retry_after_s)


def from_lazuli(error: LazuliError, fields: Mapping[str, str]) -> ApiError:
    """The answer to a request that failed.

    Args:
        error: What the client's part raised; its rows are those of the request.
        fields: What the API calls the fields that the server names, and the options that it advises, such as
            `truncate="end"`; "" where it has none like that.
    """
    message = _FRAME.sub("", error.message)
    match error:
        case InvalidInputError():
            message = _ADVICE.sub(lambda advice: _translated(advice, fields), message)
            found = _FIELD.match(message)
            field = fields.get(found["field"], found["field"]) if found else None
            return invalid(_FIELD.sub(field, message) if field else message, field)
        case ModelNotFoundError():
            return ApiError(404, message, "model_not_found", field="model")
        case UnsupportedError():
            return ApiError(501, message, "not_supported")
        case ConnectionFailedError():
            return ApiError(503, message, "no_server", retry_after_s=_RETRY_AFTER_S)
        case UnavailableError():
            return overloaded(message)
        case DeadlineError():
            return ApiError(504, message, "timeout")
    return ApiError(500, message, "server_error")


def _translated(advice: re.Match[str], fields: Mapping[str, str]) -> str:
    """The advice in words of the API; nothing if it has no such option."""
    option = fields.get(advice["option"], advice["option"])
    return f"{advice['before']}pass {option}{advice['after'] or ''}" if option else ""
