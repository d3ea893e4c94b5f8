"""Where a server is reached, as a client writes it.

Takes options; returns host:port strings. Does not know whether anything listens there.
"""

import ipaddress
import socket
from dataclasses import dataclass

from lazuli.launch.errors import LaunchError
from lazuli.launch.options import ServeOptions

_ANY = {"0.0.0.0": "127.0.0.1"}


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
        return cls(f"{host}:{options.http_port}", f"{host}:{options.grpc_port}", f"{host}:{options.metrics_port}")


def numeric_address(host: str) -> str:
    """The IPv4 address of a host: Triton's HTTP server resolves no names, and its three services no IPv6 alike.

    Raises:
        LaunchError: If it has none.
    """
    try:
        version = ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        version = None
    if version == 4:
        return host
    if version == 6 or not host:
        raise LaunchError(f"--host {host!r} is not an IPv4 address", "use 0.0.0.0 for every interface")
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise LaunchError(f"--host {host!r} has no IPv4 address ({error.strerror or error})") from None
