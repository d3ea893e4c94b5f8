"""What a client is told once: address, limits and model names.

Takes the constructor's arguments, returns one checked, frozen object that both clients share. Opens nothing.
"""

from dataclasses import dataclass, field
from typing import Literal

from lazuli_client.retry import MIN_TIMEOUT_S, RetryPolicy

Protocol = Literal["grpc", "http"]
_DEFAULT_URL = {"grpc": "localhost:8001", "http": "localhost:8000"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Checked settings of a client; `LazuliClient` describes each.

    Raises:
        ValueError: If a value is out of its range; the message names it.
    """

    url: str | None = None
    protocol: Protocol = "grpc"
    timeout_s: float = 60.0
    retries: int = 4
    max_in_flight: int = 4
    rows_per_request: int = 64
    chars_per_request: int = 200_000
    model: str = "embed"
    token_model: str = "embedding"
    stream_model: str = "embed_stream"
    address: str = field(init=False)
    retry: RetryPolicy = field(init=False)

    def __post_init__(self) -> None:
        if self.protocol not in _DEFAULT_URL:
            raise ValueError(f'protocol: must be "grpc" or "http", got {self.protocol!r}')
        if not self.timeout_s >= MIN_TIMEOUT_S:
            raise ValueError(
                f"timeout_s: {self.timeout_s}, but at least {MIN_TIMEOUT_S} is needed: deadlines of a few "
                "milliseconds crash Triton 24.10 (server#7368)"
            )
        for name, least in (
            ("retries", 0),
            ("max_in_flight", 1),
            ("rows_per_request", 1),
            ("chars_per_request", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)}, but it must be at least {least}")
        object.__setattr__(self, "address", _address(self.url or _DEFAULT_URL[self.protocol], self.protocol))
        object.__setattr__(self, "retry", RetryPolicy(self.retries))


def _address(url: str, protocol: Protocol) -> str:
    """Host and port without a scheme, as tritonclient wants them."""
    scheme, separator, rest = url.rpartition("://")
    if separator and scheme != protocol:
        raise ValueError(f"url: {url!r} does not fit protocol {protocol!r}; give host:port (TLS is not supported)")
    return rest.rstrip("/")
