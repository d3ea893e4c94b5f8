"""Hugging Face's text-embeddings-inference, through its own route `/embed` or through the one in OpenAI's style.

It refuses more texts in a request than `--max-client-batch-size` (32 unless set): the suite `bulk` needs 100.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clients.keep_alive import JSON_HEADERS, KeepAlive
from peers.contract import Answer, Endpoint, Peer
from peers.json_server import reachable
from peers.openai_style import OpenAiEndpoint, encoding_of
from peers.spec import Settings, TargetSpec
from texts.rows import Rows

_ROUTES = ("native", "openai")


@dataclass(frozen=True)
class TeiEndpoint:
    """A server by URL."""

    url: str

    def connect(self) -> "TeiConnection":
        """A connection of its own."""
        return TeiConnection(self.url)


class TeiConnection:
    """`/embed`."""

    def __init__(self, url: str) -> None:
        """Get ready to connect."""
        self._connection = KeepAlive(url)

    def prepare(self, rows: Rows) -> bytes:
        """The body; an over-long text is to be an error, as it is here."""
        content = rows.texts if rows.ids is None else [ids.tolist() for ids in rows.ids]
        return json.dumps({"inputs": content, "normalize": True, "truncate": False}).encode()

    def send(self, prepared: bytes) -> Answer:
        """One POST."""
        content, headers = self._connection.post("/embed", prepared, JSON_HEADERS)
        tokens = headers.get("x-compute-tokens")
        return Answer(np.array(json.loads(content), np.float32), int(tokens) if tokens else None)

    def ping(self) -> None:
        """Ask for its health."""
        self._connection.get("/health")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextlib.contextmanager
def open_peer(spec: TargetSpec, settings: Settings) -> Iterator[Peer]:
    """A target of this kind; options: `route` (native or openai), `encoding` of the latter, `command`."""
    spec.check_options("route", "encoding", "command")
    route = spec.options.get("route", _ROUTES[0])
    if route not in _ROUTES:
        raise ValueError(f"tei: route={route}, but it may be {' or '.join(_ROUTES)}")
    found: dict[str, str] = {}

    def ask(connection: KeepAlive) -> None:
        connection.get("/health")
        about = connection.get_json("/info")
        found.update(model=about["model_id"], version=about["version"], dtype=about.get("model_dtype", "auto"))

    with reachable(spec, settings, ask) as pid:
        url = spec.address or ""
        endpoint: Endpoint = TeiEndpoint(url)
        if route == "openai":
            endpoint = OpenAiEndpoint(url, found["model"], "/v1/embeddings", "/health", encoding_of(spec))
        yield Peer(f"tei {found['version']}", endpoint, f"http {route}", found["dtype"], takes_ids=True, pid=pid)
