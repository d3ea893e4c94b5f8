"""vLLM's server, through its OpenAI-style route, which takes texts and token ids."""

import contextlib
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
    found = {"model": "", "version": "?"}

    def ask(connection: KeepAlive) -> None:
        connection.get("/health")
        found["model"] = first_model(connection, "/v1/models")
        found["version"] = str(connection.get_json("/version")["version"])

    with reachable(spec, settings, ask) as pid:
        model = spec.options.get("model", found["model"])
        endpoint = OpenAiEndpoint(spec.address or "", model, "/v1/embeddings", "/health", encoding_of(spec))
        dtype = spec.options.get("dtype", settings.dtype or "auto")
        yield Peer(f"vllm {found['version']}", endpoint, "http", dtype, takes_ids=True, pid=pid)
