"""Lazuli's server over unary gRPC, HTTP, or a gRPC stream: one that is named, or one that is started.

Targets of a run that name no address and have one dtype share a server, with both doors if one of them is a stream.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import lazuli
from clients.senders import Sender, connect
from lazuli.launch.options import Door, Dtype, ServeOptions
from lazuli.launch.running import RunningServer, running_server
from lazuli_client.request import text_request, token_request
from peers.contract import Answer, Peer
from peers.spec import Settings, TargetSpec
from texts.rows import Rows


@dataclass(frozen=True)
class LazuliEndpoint:
    """A door of a server.

    Attributes:
        protocol: `grpc`, `http` or `stream`.
        address: host:port.
    """

    protocol: str
    address: str

    def connect(self) -> "LazuliConnection":
        """A connection of its own."""
        return LazuliConnection(connect(self.protocol, self.address), "_stream" if self.protocol == "stream" else "")


class LazuliConnection:
    """Texts to `embed`, ids to `embedding`."""

    def __init__(self, sender: Sender, suffix: str) -> None:
        """Wrap a connection; the suffix is that of the models' names."""
        self._sender = sender
        self._suffix = suffix

    def prepare(self, rows: Rows) -> Any:
        """The message."""
        numbers = range(len(rows.texts))
        if rows.ids is not None:
            return self._sender.prepare(token_request(f"embedding{self._suffix}", rows.ids, {}, numbers))
        return self._sender.prepare(text_request(f"embed{self._suffix}", rows.texts, {}, numbers))

    def send(self, prepared: Any) -> Answer:
        """Vectors and the server's count of tokens."""
        outputs = self._sender.send(prepared)
        return Answer(outputs["embedding"], int(outputs["token_count"].sum()))

    def ping(self) -> None:
        """Ask whether the server lives."""
        self._sender.ping()

    def close(self) -> None:
        """Close the connection."""
        self._sender.close()


@contextlib.contextmanager
def open_peer(spec: TargetSpec, settings: Settings) -> Iterator[Peer]:
    """A target of this kind; `dtype` is its option."""
    spec.check_options("dtype")
    protocol = spec.kind.removeprefix("lazuli-")
    dtype = spec.options.get("dtype", settings.dtype)
    system = f"lazuli {lazuli.__version__}"
    if spec.address is not None:
        endpoint = LazuliEndpoint(protocol, spec.address)
        yield Peer(system, endpoint, protocol, dtype or "auto", takes_ids=True)
        return
    with _shared_server(settings, dtype) as server:
        address = server.http if protocol == "http" else server.grpc
        endpoint = LazuliEndpoint(protocol, address)
        yield Peer(system, endpoint, protocol, dtype or "auto", takes_ids=True, pid=server.process.pid)


@contextlib.contextmanager
def _shared_server(settings: Settings, dtype: str | None) -> Iterator[RunningServer]:
    """A server that ends with the block that started it."""
    if dtype in _servers:
        yield _servers[dtype]
        return
    options = ServeOptions(
        door=Door.BOTH if settings.streams else Door.UNARY,
        checkpoint=settings.checkpoint,
        device=settings.device,
        dtype=Dtype(dtype) if dtype else None,
        max_seq_length=settings.max_seq_length,
    )
    with running_server(options, environment=settings.environment, log_path=settings.log) as server:
        _servers[dtype] = server
        try:
            yield server
        finally:
            del _servers[dtype]


_servers: dict[str | None, RunningServer] = {}
