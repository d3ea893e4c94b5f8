"""Servers that are objects, and the gateway's application called without a network."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from starlette.applications import Starlette

from lazuli_client.errors import InvalidInputError, ModelNotFoundError
from lazuli_client.gateway.app import create
from lazuli_client.gateway.guard.middleware import Guard
from lazuli_client.gateway.settings import GatewaySettings

WIDTH = 4
LIMIT = 50
TENSORS = {
    "embed": ({"text"}, {"embedding", "token_count", "truncated"}),
    "dense": ({"text"}, {"embedding", "token_count", "truncated"}),
    "splade": ({"text"}, {"embedding", "token_count", "truncated"}),
    "rerank": ({"query", "document"}, {"score", "token_count", "truncated"}),
    "classify": ({"text"}, {"label", "probability", "token_count", "truncated"}),
}
LABELS = ("short", "long")


def vector(text):
    """Another one for each text, and exact in float32."""
    return np.array([len(text), sum(text.encode()) % 1024, text.encode()[0] if text else 0, 0.5], np.float32)


class FakeWire:
    """A server: answers at once, unless `hook` waits or raises."""

    def __init__(self, address, hook=None, models=tuple(TENSORS)):
        self.address = address
        self.hook = hook
        self.models = models
        self.asked = ""  # whose tensors were asked for last
        self.requests = []
        self.ids = []

    async def send(self, request, timeout_s, request_id=""):
        is_probe = not request_id
        if self.hook is not None:
            await self.hook(self, request, is_probe)
        if not is_probe:
            self.requests.append(request)
            self.ids.append(request_id)
        return answer(request)

    async def tensors_of(self, model, timeout_s):
        self.asked = model
        if self.hook is not None:
            await self.hook(self, None, True)
        if model not in self.models:
            raise ModelNotFoundError(f"unknown model: {model}")
        inputs, outputs = TENSORS[model]
        return frozenset(inputs), frozenset(outputs)

    async def close(self):
        pass


def answer(request):
    rows = len(request.rows)
    if "input_ids" in request.tensors:
        ids, mask = request.tensors["input_ids"], request.tensors["attention_mask"]
        counts = mask.sum(axis=1, keepdims=True).astype(np.int32)
        return {"embedding": np.hstack([(ids * mask).sum(axis=1, keepdims=True)] * WIDTH).astype(np.float32)} | {
            "token_count": counts
        }
    name = "document" if "document" in request.tensors else "text"
    texts = [value.decode() for value in request.tensors[name][:, 0]]
    counts = np.array([[1 + len(text.split())] for text in texts], np.int32)
    if request.parameters.get("truncate", "none") == "none" and (counts > LIMIT).any():
        row = int((counts > LIMIT).argmax())
        # As Triton says it.
        raise InvalidInputError(
            f"in ensemble 'embed', [request id: x] {name}[{row}]: {counts[row, 0]} tokens, "
            f"but at most {LIMIT} are allowed"
        )
    outputs = {"token_count": counts, "truncated": counts > LIMIT}
    if name == "document":
        return outputs | {"score": np.array([[1 / (1 + len(text))] for text in texts], np.float32)}
    if request.model == "classify":
        long = np.array([[len(text) > 3] for text in texts])
        names = np.array([[one.encode() for one in LABELS]] * rows, dtype=np.object_)
        outputs |= {"probability": np.where(long, [[0.25, 0.75]], [[0.75, 0.25]]).astype(np.float32)}
        outputs |= {"label": np.where(long, names[:, 1:], names[:, :1])}
        return outputs | ({"labels": names} if "labels" in request.parameters else {})
    vectors = np.stack([vector(text) for text in texts])
    output = request.parameters.get("output", "float32")
    if request.model == "dense" and output == "sparse":
        raise InvalidInputError("output: sparse: the model has no such output, only dense vectors")
    if request.model == "splade" and output == "float32":
        return outputs | {"embedding": np.zeros((rows, 0), np.float32)}
    if output == "sparse":
        ids = np.array([[1, 7, -1]] * rows, np.int32)
        return outputs | {"sparse_ids": ids, "sparse_weights": np.array([[0.5, 0.25, 0]] * rows, np.float32)}
    if output == "ubinary":
        return outputs | {"embedding_ubinary": np.full((rows, 1), 129, np.uint8)}
    return outputs | {"embedding": vectors}


@dataclass
class Answer:
    status: int = 0
    headers: dict = field(default_factory=dict)
    body: bytes = b""

    def json(self):
        return json.loads(self.body)


class App:
    """The application with its lifespan; `post` and `get` call it."""

    def __init__(self, app, wires):
        self.app = app
        self.wires = wires

    @property
    def inner(self):
        """Starlette's application, inside the others."""
        app = self.app
        while not isinstance(app, Starlette):
            app = app._app if isinstance(app, Guard) else app.app
        return app

    @property
    def gateway(self):
        return self.inner.state.gateway

    async def post(self, path, body, headers=(), chunks=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        pieces = [data] if chunks is None else chunks
        given = [] if chunks is not None else [(b"content-length", b"%d" % len(data))]
        return await self.call("POST", path, [*given, *headers], pieces)

    async def get(self, path, headers=(), query=""):
        return await self.call("GET", path, list(headers), [b""], query)

    async def call(self, method, path, headers, pieces, query=""):
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": headers, "client": ("10.0.0.1", 1), "server": ("gateway", 80), "scheme": "http",
            "root_path": "", "http_version": "1.1",
        }  # fmt: skip
        left, answer = list(pieces), Answer()

        async def receive():
            if not left:
                await asyncio.Event().wait()
            piece = left.pop(0)
            if piece is None:  # the client goes away, a little later
                await asyncio.sleep(0.05)
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": bool(left) and left[0] is not None}

        async def send(message):
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        await self.app(scope, receive, send)
        return answer


@contextlib.asynccontextmanager
async def running(hook=None, **settings):
    """The application in front of servers that `hook` makes behave."""
    values = {"replicas": ("one:1",), "probe_interval_s": 0.1, "probe_timeout_s": 0.5, "queue_s": 2.0} | settings
    wires = {}

    def connect(address):
        wires[address] = FakeWire(address, hook)
        return wires[address]

    app = App(create(GatewaySettings(**values), connect), wires)
    async with app.inner.router.lifespan_context(app.inner):
        yield app


@pytest.fixture
def gateway():
    """Starts applications."""
    return running


@pytest.fixture
def fake():
    """The fakes, as a fixture because test folders are no packages."""
    return SimpleNamespace(Wire=FakeWire, vector=vector, answer=answer, limit=LIMIT)
