"""The exceptions of the client, and how a server's answer becomes one of them.

    LazuliError
    ├── InvalidInputError      the caller's fault; also a ValueError; never retried
    ├── UnavailableError       overload, or the server is stopping or not ready yet; retried
    ├── ConnectionFailedError  no server there, or the connection broke; also a ConnectionError; retried
    ├── DeadlineError          no answer within the timeout; also a TimeoutError; never retried
    ├── ModelNotFoundError     the server runs, but not with this model
    ├── UnsupportedError       this model or protocol cannot do it
    ├── FileError              a file of the command line cannot be read or written as asked
    └── ServerError            the fault is the server's, or its answer makes no sense

Takes status codes and messages, returns exceptions. Does not know tritonclient, requests or tensors.
"""

import re
from collections.abc import Sequence
from typing import Self


class LazuliError(Exception):
    """Base of all errors that this package raises on purpose.

    Attributes:
        message: What happened; the server's own words where it spoke, with row numbers of the caller's input.
        code: The status that the server gave (`INVALID_ARGUMENT`, `503`), None where there was none.
        row: Row of the caller's input that is at fault, None if the error is not about one row.
    """

    def __init__(self, message: str, *, code: str | None = None, row: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.row = row

    def __str__(self) -> str:
        return self.message

    def renumbered(self, rows: Sequence[int]) -> Self:
        """The same error in terms of the caller's input.

        Args:
            rows: For each row of the request, the row of the caller's input that it came from.

        Returns:
            An error of the same class, with row numbers in the message replaced and `row` set to the first
            one.
        """
        found: list[int] = []

        def replace(match: re.Match[str]) -> str:
            row = int(match["row"])
            if row >= len(rows):
                return match[0]
            found.append(int(rows[row]))
            return f"{match['field']}[{rows[row]}]"

        message = _ROW.sub(replace, self.message)
        return type(self)(message, code=self.code, row=found[0] if found else self.row)


class InvalidInputError(LazuliError, ValueError):
    """A text, an option or a token list cannot be embedded; the same call will fail again."""


class UnavailableError(LazuliError):
    """The server refused the request for now: its queue is full, it is starting or stopping."""


class ConnectionFailedError(LazuliError, ConnectionError):
    """There is no server at the address, or the connection to it broke."""


class DeadlineError(LazuliError, TimeoutError):
    """The answer did not come within the timeout."""


class ModelNotFoundError(LazuliError):
    """The server does not have the model; perhaps it was started with the other door."""


class UnsupportedError(LazuliError):
    """The model or the protocol cannot do what was asked."""


class FileError(LazuliError):
    """A file cannot be read or written as asked; only the command line raises it."""


class ServerError(LazuliError):
    """The server failed, or answered something that breaks the contract."""


RETRYABLE = (UnavailableError, ConnectionFailedError)

# How the server names a row. Only at a word boundary, so that `context[3]` in a message is left alone.
_ROW = re.compile(r"\b(?P<field>text|input_ids|attention_mask|embedding)\[(?P<row>\d+)\]")

_BY_GRPC_CODE: dict[str, type[LazuliError]] = {
    "INVALID_ARGUMENT": InvalidInputError,
    "OUT_OF_RANGE": InvalidInputError,
    "UNAVAILABLE": UnavailableError,
    "RESOURCE_EXHAUSTED": UnavailableError,
    "DEADLINE_EXCEEDED": DeadlineError,
    "NOT_FOUND": ModelNotFoundError,
    "UNIMPLEMENTED": UnsupportedError,
}
_BY_HTTP_STATUS: dict[int, type[LazuliError]] = {
    400: InvalidInputError,
    404: ModelNotFoundError,
    408: DeadlineError,
    413: InvalidInputError,
    429: UnavailableError,
    501: UnsupportedError,
    502: UnavailableError,
    503: UnavailableError,
    504: DeadlineError,
}
# Triton says NOT_FOUND with these words while it loads or unloads a model that it has.
_IS_LOADING = "has no available versions"
# gRPC gives UNAVAILABLE both for a refusal by the server and for its own trouble with the connection.
_CONNECTION_TROUBLE = re.compile(
    r"failed to connect|connection (refused|reset|timed out|closed)|socket closed|DNS resolution"
    r"|name resolution|GOAWAY|recvmsg|broken pipe|stream removed|endpoint closing|keepalive|transport",
    re.IGNORECASE,
)
# Triton 24.10 sends no status code with an error inside a stream, so the words must do. First match wins; the
# messages that may quote a caller's words come first, known by how they begin.
_FRAME = r"^(in ensemble '[^']*', )?(\[request id: [^\]]*\] )?"
_FIELDS = r"(text|input_ids|attention_mask|prompt_name|instruction|truncate|dimensions|normalize)(\[|:| and )"
_BY_WORDS: tuple[tuple[re.Pattern[str], type[LazuliError]], ...] = (
    (re.compile(rf"{_FRAME}({_FIELDS}|unknown parameter|inference request batch-size)"), InvalidInputError),
    (re.compile(rf"{_FRAME}(embedding\[|the forward pass failed|the device failed)"), ServerError),
    (re.compile(_IS_LOADING), UnavailableError),
    (re.compile(r"maximum queue size|shutting down|stopping|not ready|unavailable", re.I), UnavailableError),
    (re.compile(r"unknown model", re.I), ModelNotFoundError),
    (re.compile(r"timeout expired|timed out", re.I), DeadlineError),
    (re.compile(r"unexpected (shape|inference|datatype)"), InvalidInputError),
)


def from_grpc_status(code: str, message: str) -> LazuliError:
    """The error for a failed gRPC call.

    Args:
        code: Name of the gRPC status, such as `UNAVAILABLE`.
        message: The status's details.
    """
    kind = _BY_GRPC_CODE.get(code, ServerError)
    if _IS_LOADING in message:
        kind = UnavailableError
    if kind is UnavailableError and _CONNECTION_TROUBLE.search(message):
        kind = ConnectionFailedError
    if kind is DeadlineError:
        message = f"no answer within the timeout ({message})"
    return kind(message or code, code=code)


def from_http_status(status: int, message: str) -> LazuliError:
    """The error for an HTTP answer other than 200."""
    kind = UnavailableError if _IS_LOADING in message else _BY_HTTP_STATUS.get(status, ServerError)
    return kind(message or f"HTTP status {status}", code=str(status))


def from_stream_message(message: str) -> LazuliError:
    """The error for an error message inside a gRPC stream, which comes without a status code."""
    for pattern, kind in _BY_WORDS:
        if pattern.search(message):
            return kind(message)
    return ServerError(message)
