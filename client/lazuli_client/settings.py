"""What a client is told once: address, limits and model names.

Takes the constructor's arguments, returns one checked, frozen object that both clients share. Opens nothing.
"""

from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from lazuli_client.retry import DEFAULT_RETRIES, MIN_TIMEOUT_S, RetryPolicy
from lazuli_client.tls import Tls

if TYPE_CHECKING:
    from lazuli_client.request import EmbedRequest

Protocol = Literal["grpc", "http"]
WORKLOADS = ("query", "bulk")
# The server drops what it has not begun so long before nobody waits for it any more: the answer must travel, too.
_MARGIN_S = 1.0
_MARGIN_SHARE = 0.1
_DEFAULT_URL = {"grpc": "localhost:8001", "http": "localhost:8000"}
# A scheme may stand before the address: without and with TLS.
_SCHEMES = {"grpc": ("grpc", "grpcs"), "http": ("http", "https")}
# A day. Clocks of transports overflow at some number of seconds, and nobody waits that long.
MAX_TIMEOUT_S = 86_400.0
# max_batch_size of the committed models: the server refuses a request of more rows.
MAX_ROWS = 1024
# The models for tokens and for streams of the built-in one; those of others are named after it.
_BUILT_IN = {"embed": ("embedding", "embed_stream")}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Checked settings of a client; `LazuliClient` describes each.

    Without a name, the models for tokens and streams are those that belong to `model`.

    Raises:
        ValueError: If a value is out of its range; the message names it.
    """

    url: str | None = None
    protocol: Protocol = "grpc"
    timeout_s: float = 60.0
    retries: int = DEFAULT_RETRIES
    max_in_flight: int = 4
    rows_per_request: int = 64
    chars_per_request: int = 200_000
    model: str = "embed"
    token_model: str = ""
    stream_model: str = ""
    workload: str | None = None
    tls: Tls | None = None
    address: str = field(init=False)
    retry: RetryPolicy = field(init=False)

    def __post_init__(self) -> None:
        if self.protocol not in _DEFAULT_URL:
            raise ValueError(f'protocol: must be "grpc" or "http", got {self.protocol!r}')
        if self.workload not in (None, *WORKLOADS):
            raise ValueError(f"workload: must be one of {', '.join(WORKLOADS)}, got {self.workload!r}")
        _check_timeout(self.timeout_s)
        if not (isinstance(self.model, str) and self.model and self.model.isprintable()):
            raise ValueError(f"model: must be the name of a model, got {self.model!r}")
        for name, least in (
            ("retries", 0),
            ("max_in_flight", 1),
            ("rows_per_request", 1),
            ("chars_per_request", 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise ValueError(f"{name}: must be an integer, got {value!r}")
            if value < least:
                raise ValueError(f"{name}: {value}, but it must be at least {least}")
        if self.rows_per_request > MAX_ROWS:
            raise ValueError(
                f"rows_per_request: {self.rows_per_request}, but the server takes at most {MAX_ROWS} rows in a request"
            )
        scheme, address = _split_url(self.url or _DEFAULT_URL[self.protocol], self.protocol)
        plain, secure = _SCHEMES[self.protocol]
        if scheme == plain and self.tls is not None:
            raise ValueError(f"url: {self.url!r} says that there is no TLS, but `tls` was given; use {secure}://")
        if scheme == secure and self.tls is None:
            object.__setattr__(self, "tls", Tls())
        object.__setattr__(self, "address", address)
        object.__setattr__(self, "retry", RetryPolicy(self.retries))
        token_model, stream_model = _BUILT_IN.get(self.model, (f"{self.model}.embedding", f"{self.model}.stream"))
        object.__setattr__(self, "token_model", self.token_model or token_model)
        object.__setattr__(self, "stream_model", self.stream_model or stream_model)

    def mark(self, request: "EmbedRequest", left_s: float | None = None) -> "EmbedRequest":
        """The request with what all requests of the client carry.

        Args:
            request: The request.
            left_s: How long its answer is waited for; None where only the next of several answers is.
        """
        marks: dict[str, str | int] = {}
        if self.workload is not None:
            marks["workload"] = self.workload
        if left_s is not None:
            marks["deadline_ms"] = _deadline_ms(left_s)
        return replace(request, parameters={**request.parameters, **marks}) if marks else request


def _deadline_ms(left_s: float) -> int:
    return max(1, int(1000 * (left_s - min(_MARGIN_S, _MARGIN_SHARE * left_s))))


def _check_timeout(timeout_s: float) -> None:
    if timeout_s < MIN_TIMEOUT_S:
        raise ValueError(
            f"timeout_s: {timeout_s}, but at least {MIN_TIMEOUT_S} is needed: deadlines of a few milliseconds "
            "crash Triton 24.10 (server#7368)"
        )
    if not timeout_s <= MAX_TIMEOUT_S:  # NaN compares as false
        raise ValueError(
            f"timeout_s: {timeout_s}, but it must be a number of at most {MAX_TIMEOUT_S:g} (a day): without a "
            "deadline a call would wait for ever for a server whose model process died"
        )


def _split_url(url: str, protocol: Protocol) -> tuple[str, str]:
    """The scheme, if there is one, and host and port, as tritonclient wants them."""
    scheme, separator, rest = url.rpartition("://")
    if separator and scheme not in _SCHEMES[protocol]:
        raise ValueError(
            f"url: {url!r} does not fit protocol {protocol!r}; give host:port, or for TLS {_SCHEMES[protocol][1]}://host:port"
        )
    address = rest.rstrip("/")
    if problem := _problem(address, protocol):
        raise ValueError(f"url: {url!r}: {problem}; give host:port")
    return scheme, address


def _problem(address: str, protocol: Protocol) -> str | None:
    """What keeps an address from being host:port, for HTTP with a path if need be; None if nothing does."""
    if not address.isprintable() or " " in address:
        return "there is a blank or a control character in it"
    try:
        parts = urlsplit("//" + address)
        port = parts.port
    except ValueError as error:  # a port that is no number or too large, or half a pair of brackets
        return str(error)
    extra = parts.query or parts.fragment or parts.username is not None or (parts.path and protocol == "grpc")
    if not parts.hostname or extra:
        return "there is no host in it" if not parts.hostname else "there is more than a host and a port in it"
    return None if port else "there is no port in it"
