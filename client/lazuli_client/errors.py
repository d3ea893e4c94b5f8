"""The exceptions of the client, and how a server's answer becomes one of them.

    LazuliError
    ├── InvalidInputError      the caller's fault; also a ValueError; never retried
    │   └── InputTypeError     the whole argument is of a wrong type; also a TypeError
    ├── UnavailableError       overload, or the server is stopping or not ready yet; retried
    ├── ConnectionFailedError  no server there, or the connection broke; also a ConnectionError; retried
    ├── TlsError               no encrypted connection to this server; also a ConnectionError; never retried
    ├── DeadlineError          no answer within the timeout; also a TimeoutError; never retried
    ├── ModelNotFoundError     the server runs, but not with this model
    ├── UnsupportedError       this model or protocol cannot do it
    ├── ClosedError            the client was closed before; also a RuntimeError
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


class InputTypeError(InvalidInputError, TypeError):
    """An argument as a whole is of a type that cannot be embedded, such as None or a set."""


class UnavailableError(LazuliError):
    """The server cannot serve the request for now: its queue is full, it or its model process is starting."""


class ConnectionFailedError(LazuliError, ConnectionError):
    """There is no server at the address, or the connection to it broke."""


class TlsError(LazuliError, ConnectionError):
    """Certificates, names or the port do not fit; trying again is of no use."""


class DeadlineError(LazuliError, TimeoutError):
    """The answer did not come within the timeout."""


class ModelNotFoundError(LazuliError):
    """The server does not have the model; perhaps it was started with the other door."""


class UnsupportedError(LazuliError):
    """The model or the protocol cannot do what was asked."""


class ClosedError(LazuliError, RuntimeError):
    """The client was used after `close()`, or closed while it had work to do."""

    def __init__(self, message: str = "", *, code: str | None = None, row: int | None = None) -> None:
        super().__init__(message or "the client is closed; make a new one", code=code, row=row)


class FileError(LazuliError):
    """A file cannot be read or written as asked; only the command line raises it."""


class ServerError(LazuliError):
    """The server failed, or answered something that breaks the contract."""


RETRYABLE = (UnavailableError, ConnectionFailedError)

# How the server names a row. Only at a word boundary, so that `context[3]` in a message is left alone.
_ROW = re.compile(
    r"\b(?P<field>text|query|document|input_ids|token_type_ids|attention_mask|embedding(_\w+)?|score|probability)"
    r"\[(?P<row>\d+)\]"
)

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
# Triton says INTERNAL with these words after a model process has died, until the launcher restarts the server.
_STUB_DIED = re.compile(r"stub process( '[^']*')? is not healthy", re.IGNORECASE)
_UNKNOWN_MODEL = re.compile(r"unknown model", re.IGNORECASE)
_DOOR_HINT = (
    "; perhaps the server was started without the door of this model (`lazuli serve --door both` has all), "
    "or its repository has no model of this name (`lazuli model list`)"
)
# gRPC gives UNAVAILABLE both for a refusal by the server and for its own trouble with the connection.
_CONNECTION_TROUBLE = re.compile(
    r"failed to connect|connection (refused|reset|timed out|closed)|socket closed|DNS resolution"
    r"|name resolution|errors resolving|(address|hostname) lookup"
    r"|GOAWAY|recvmsg|broken pipe|stream removed|endpoint closing|keepalive|transport",
    re.IGNORECASE,
)
# gRPC's words when somebody accepts a connection and then hangs up.
_HUNG_UP = re.compile(r"failed to connect.*socket closed", re.IGNORECASE)
_TLS_HINT = "; perhaps the port wants TLS, or a certificate from the client"
# What OpenSSL, gRPC and aiohttp say of a handshake; first match wins.
_TLS_TROUBLE = (
    (
        r"hostname (verification|mismatch)|IP address mismatch|not in peer certificate",
        "the server's certificate is for another name than that of the address (Tls.server_name)",
    ),
    (r"certificate (has expired|is not yet valid)", "the server's certificate is not valid now"),
    (
        r"certificate.verify.failed",
        "the server's certificate is signed by nobody who is trusted (Tls.ca_file)",
    ),
    (
        r"alert[ _](certificate[ _]required|bad[ _]certificate|unknown[ _]ca)|alert_certificate_required",
        "the server wants another certificate from the client (Tls.certificate_file)",
    ),
    (r"wrong.version.number|record layer failure", "the port does not speak TLS"),
)
# What grpc's asyncio client says, as INTERNAL, when a connection breaks while it writes.
_BROKE_IN_WRITE = "Internal error from Core"
# What Triton puts before the server's own words.
_FRAME = r"^(in ensemble '[^']*', )?(\[request id: [^\]]*\] )?"
# The server says CANCELLED, or 400, with these words after the option `deadline_ms`.
_DEADLINE = re.compile(rf"{_FRAME}timed out: ")
_FIELDS = (
    r"(text|document|input_ids|attention_mask|prompt_name|instruction|truncate|overlap|dimensions|force_dimensions"
    r"|normalize|input_type|output|workload|deadline_ms)"
    r"(\[|:| and )"
)
# Triton 24.10 sends no status code with an error inside a stream, so the words must do. First match wins; the
# messages that may quote a caller's words come first, known by how they begin.
_BY_WORDS: tuple[tuple[re.Pattern[str], type[LazuliError]], ...] = (
    (re.compile(rf"{_FRAME}({_FIELDS}|unknown parameter|inference request batch-size)"), InvalidInputError),
    (re.compile(rf"{_FRAME}(embedding(_\w+)?\[|the forward pass failed|the device failed)"), ServerError),
    (re.compile(_IS_LOADING), UnavailableError),
    (_STUB_DIED, UnavailableError),
    (re.compile(r"maximum queue size|shutting down|stopping|not ready|unavailable", re.I), UnavailableError),
    (_UNKNOWN_MODEL, ModelNotFoundError),
    (re.compile(r"timeout expired|timed out", re.I), DeadlineError),
    (re.compile(r"unexpected (shape|inference|datatype)"), InvalidInputError),
)


def from_grpc_status(code: str, message: str) -> LazuliError:
    """The error for a failed gRPC call.

    Args:
        code: Name of the gRPC status, such as `UNAVAILABLE`.
        message: The status's details.
    """
    kind = _by_words(_BY_GRPC_CODE.get(code, ServerError), message)
    if message == _BROKE_IN_WRITE or (kind is UnavailableError and _CONNECTION_TROUBLE.search(message)):
        kind = ConnectionFailedError
        if trouble := tls_trouble(message):
            return trouble
        message += _TLS_HINT if _HUNG_UP.search(message) else ""
    if kind is DeadlineError:
        message = f"no answer within the timeout ({message})"
    return kind(_with_hint(kind, message or code), code=code)


def from_http_status(status: int, message: str) -> LazuliError:
    """The error for an HTTP answer other than 200."""
    kind = _by_words(_BY_HTTP_STATUS.get(status, ServerError), message)
    return kind(_with_hint(kind, message or f"HTTP status {status}"), code=str(status))


def from_stream_message(message: str) -> LazuliError:
    """The error for an error message inside a gRPC stream, which comes without a status code."""
    for pattern, kind in _BY_WORDS:
        if pattern.search(message):
            return kind(_with_hint(kind, message))
    return ServerError(message)


def tls_trouble(message: str) -> TlsError | None:
    """The error for a handshake that failed; None if the message tells of none."""
    for pattern, meaning in _TLS_TROUBLE:
        if re.search(pattern, message, re.IGNORECASE):
            return TlsError(f"{meaning}: {message}")
    return None


def _by_words(kind: type[LazuliError], message: str) -> type[LazuliError]:
    """`kind`, or another one where Triton's code says less than its words."""
    if _DEADLINE.search(message):
        return DeadlineError
    died = kind is ServerError and _STUB_DIED.search(message)
    return UnavailableError if died or _IS_LOADING in message else kind


def _with_hint(kind: type[LazuliError], message: str) -> str:
    return message + _DOOR_HINT if kind is ModelNotFoundError and _UNKNOWN_MODEL.search(message) else message
