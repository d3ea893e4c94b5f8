"""infinity, through its own route `/embeddings`; a URL prefix it was started with belongs into the address."""

import contextlib
import json
from collections.abc import Iterator

from clients.keep_alive import KeepAlive
from peers.contract import Peer
from peers.json_server import reachable
from peers.openai_style import OpenAiEndpoint, encoding_of, first_model
from peers.spec import Settings, TargetSpec


@contextlib.contextmanager
def open_peer(spec: TargetSpec, settings: Settings) -> Iterator[Peer]:
    """A target of this kind; options: `model`, `encoding`, `dtype` (for the record), `command`."""
    spec.check_options("model", "encoding", "dtype", "command")
    found = {"model": "", "version": ""}

    def ask(connection: KeepAlive) -> None:
        found["model"] = first_model(connection, "/models")
        found["version"] = _version(connection)

    with reachable(spec, settings, ask) as pid:
        model = spec.options.get("model", found["model"])
        # It counts characters as tokens unless told otherwise.
        endpoint = OpenAiEndpoint(
            spec.address or "", model, "/embeddings", "/models", encoding_of(spec), counts_tokens=False
        )
        system = f"infinity {found['version']}".strip()
        yield Peer(system, endpoint, "http", spec.options.get("dtype", "auto"), pid=pid)


def _version(connection: KeepAlive) -> str:
    """As its description of itself says it, which may be switched off."""
    try:
        return str(json.loads(connection.get("/openapi.json"))["info"]["version"])
    except (RuntimeError, KeyError, ValueError):
        return ""
