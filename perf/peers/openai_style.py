"""The embeddings API of OpenAI, which vLLM, TEI and infinity have too.

Vectors come as base64 of float32 unless `encoding=float`, as OpenAI's own client asks for them: the numbers of a JSON
list take longer to write and to read than a small model to run.
"""

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clients.keep_alive import JSON_HEADERS, KeepAlive
from peers.contract import Answer, Peer
from peers.json_server import reachable
from peers.spec import Settings, TargetSpec
from texts.rows import Rows

ENCODINGS = ("base64", "float")


@dataclass(frozen=True)
class OpenAiEndpoint:
    """One model of a server.

    Attributes:
        url: Before the path.
        model: As the server calls it.
        path: Of the embeddings.
        ping_path: Of something cheap that is answered once the server is ready.
        encoding: Of the vectors in the answer.
        counts_tokens: Whether the count in the answer can be believed.
    """

    url: str
    model: str
    path: str = "/embeddings"
    ping_path: str | None = None
    encoding: str = "base64"
    counts_tokens: bool = True

    def connect(self) -> "OpenAiConnection":
        """A connection of its own."""
        return OpenAiConnection(self)


class OpenAiConnection:
    """POST after POST."""

    def __init__(self, endpoint: OpenAiEndpoint) -> None:
        """Get ready to connect."""
        self._endpoint = endpoint
        self._connection = KeepAlive(endpoint.url)

    def prepare(self, rows: Rows) -> bytes:
        """The body."""
        content: list[Any] = rows.texts if rows.ids is None else [ids.tolist() for ids in rows.ids]
        fields = {"model": self._endpoint.model, "input": content, "encoding_format": self._endpoint.encoding}
        return json.dumps(fields).encode()

    def send(self, prepared: bytes) -> Answer:
        """One POST."""
        content, _ = self._connection.post(self._endpoint.path, prepared, JSON_HEADERS)
        return read_answer(json.loads(content), counts_tokens=self._endpoint.counts_tokens)

    def ping(self) -> None:
        """Open the connection, by way of something cheap if there is such."""
        if self._endpoint.ping_path is not None:
            self._connection.get(self._endpoint.ping_path)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def read_answer(answer: dict[str, Any], *, counts_tokens: bool) -> Answer:
    """The vectors in the order of the texts."""
    rows = sorted(answer["data"], key=lambda row: int(row["index"]))
    tokens = answer.get("usage", {}).get("prompt_tokens") if counts_tokens else None
    return Answer(np.stack([_read_vector(row["embedding"]) for row in rows]), tokens)


def _read_vector(value: str | list[float]) -> np.ndarray:
    # A server that does not know base64 may answer with a list all the same.
    return np.frombuffer(base64.b64decode(value), "<f4") if isinstance(value, str) else np.array(value, np.float32)


def encoding_of(spec: TargetSpec) -> str:
    """The option `encoding`.

    Raises:
        ValueError: If it is none of `ENCODINGS`.
    """
    encoding = spec.options.get("encoding", ENCODINGS[0])
    if encoding not in ENCODINGS:
        raise ValueError(f"{spec.kind}: encoding={encoding}, but it may be {' or '.join(ENCODINGS)}")
    return encoding


def first_model(connection: KeepAlive, path: str) -> str:
    """The name of the first model that a server lists."""
    return str(connection.get_json(path)["data"][0]["id"])


@contextlib.contextmanager
def open_peer(spec: TargetSpec, settings: Settings) -> Iterator[Peer]:
    """A target of this kind, whose address is all before `/embeddings`; `model` is needed.

    Options: `encoding`, `dtype` (for the record), `ids=yes` if it takes token lists, `tokens=no` if it counts something
    else as tokens, `command`.
    """
    spec.check_options("model", "encoding", "dtype", "ids", "tokens", "command")
    if "model" not in spec.options:
        raise ValueError(f"{spec.kind} needs model=, the name by which the server knows its model")
    takes_ids = spec.options.get("ids") == "yes"
    counts_tokens = spec.options.get("tokens") != "no"
    endpoint = OpenAiEndpoint(
        spec.address or "", spec.options["model"], encoding=encoding_of(spec), counts_tokens=counts_tokens
    )
    peer = Peer("OpenAI-style server", endpoint, "http", spec.options.get("dtype", "auto"), takes_ids=takes_ids)

    def ask(connection: KeepAlive) -> None:
        body = json.dumps({"model": endpoint.model, "input": ["ready?"]}).encode()
        content, _ = connection.post(endpoint.path, body, JSON_HEADERS)
        read_answer(json.loads(content), counts_tokens=False)

    with reachable(spec, settings, ask) as pid:
        yield replace(peer, pid=pid)
