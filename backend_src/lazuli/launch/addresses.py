"""Where a server is reached, as a client writes it.

Takes options; returns host:port strings. Does not know whether anything listens there.
"""

from dataclasses import dataclass

from lazuli.launch.options import ServeOptions

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class Addresses:
    """host:port of the three services."""

    http: str
    grpc: str
    metrics: str

    @classmethod
    def of(cls, options: ServeOptions) -> "Addresses":
        """The addresses for a client on this machine; every interface includes loopback."""
        host = _ANY.get(options.host, options.host)
        host = f"[{host}]" if ":" in host else host
        return cls(f"{host}:{options.http_port}", f"{host}:{options.grpc_port}", f"{host}:{options.metrics_port}")
