"""A transport that answers by itself, for tests of everything above the wire."""

import queue
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lazuli_client.embeddings import DENSE_OUTPUTS
from lazuli_client.errors import InvalidInputError, LazuliError
from lazuli_client.ledger import StreamAnswer
from lazuli_client.request import EmbedRequest

WIDTH = 4
TOKEN_LIMIT = 50


def vector(text: str, width: int = WIDTH) -> np.ndarray:
    """The vector of a text; texts that differ have others."""
    seeds = [zlib.crc32(f"{place}:{text}".encode()) / 2**32 for place in range(width)]
    return np.array(seeds, np.float32) + np.float32(0.01)


def answer(request: EmbedRequest) -> dict[str, np.ndarray]:
    """What a server would say to a request for texts or tokens."""
    if "input_ids" in request.tensors:
        counts = request.tensors["attention_mask"].sum(axis=1, keepdims=True).astype(np.int32)
        totals = (request.tensors["input_ids"] * request.tensors["attention_mask"]).sum(axis=1, keepdims=True)
        return {"embedding": np.hstack([totals, counts]).astype(np.float32), "token_count": counts}
    if "query" in request.tensors:
        return scores(request)
    texts = [value.decode() for value in request.tensors["text"][:, 0]]
    counts = np.array([[len(text.split())] for text in texts], np.int32)
    too_long = counts > TOKEN_LIMIT
    if request.parameters.get("truncate", "none") == "none" and too_long.any():
        row = int(too_long.argmax())
        raise InvalidInputError(f"text[{row}]: {counts[row, 0]} tokens, but at most {TOKEN_LIMIT} are allowed")
    if request.model in ("classify", "moods"):
        return labels(texts, too_long, "labels" in request.parameters)
    width = int(request.parameters.get("dimensions", WIDTH))
    vectors = np.stack([vector(text, width) for text in texts])
    name = "embedding"
    if (encoding := request.parameters.get("output", "float32")) not in ("dense", "float32"):
        name = f"embedding_{encoding}"
        vectors = vectors.astype(np.float16) if encoding == "float16" else (vectors * 100).astype(DENSE_OUTPUTS[name])
    return {name: vectors, "token_count": np.minimum(counts, TOKEN_LIMIT), "truncated": too_long}


def scores(request: EmbedRequest) -> dict[str, np.ndarray]:
    """A document's score is the number of its words that are in the query."""
    queries, documents = (
        [value.decode().split() for value in request.tensors[name][:, 0]] for name in ("query", "document")
    )
    bad = [row for row, words in enumerate(documents) if "bad" in words]
    if bad:
        raise InvalidInputError(f"document[{bad[0]}]: no token is left of it")
    common = [[len(set(query) & set(words))] for query, words in zip(queries, documents, strict=True)]
    counts = np.array([[len(query) + len(words)] for query, words in zip(queries, documents, strict=True)], np.int32)
    return {"score": np.array(common, np.float32), "token_count": counts, "truncated": counts > TOKEN_LIMIT}


LABELS = ("short", "long", "naïve")


def labels(texts: list[str], too_long: np.ndarray, with_names: bool) -> dict[str, np.ndarray]:
    """Texts of up to three characters are short."""
    best = [int(len(text) > 3) for text in texts]
    outputs = {
        "probability": np.array([[0.1 + 0.7 * (place == 0), 0.1 + 0.7 * place, 0.1] for place in best], np.float32),
        "label": np.array([[LABELS[place].encode()] for place in best], dtype=np.object_),
        "token_count": np.array([[len(text)] for text in texts], np.int32),
        "truncated": too_long,
    }
    if with_names:
        outputs["labels"] = np.array([[name.encode() for name in LABELS]] * len(texts), dtype=np.object_)
    return outputs


class FakeTransport:
    """Answers like a server.

    Requests are kept without their deadlines, which depend on the time; those are in `deadlines_ms`.

    Args:
        hook: Called with each request before it is answered; may wait, or raise a `LazuliError`.
        has_streams: Whether it plays gRPC.
    """

    def __init__(
        self,
        hook: Callable[[EmbedRequest], Any] = lambda request: None,
        *,
        has_streams: bool = True,
        stream: Callable[["FakeTransport"], Any] | None = None,
    ) -> None:
        self.hook = hook
        self.has_streams = has_streams
        self.make_stream = stream or FakeStream
        self.requests: list[EmbedRequest] = []
        self.streams: list[Any] = []
        self.threads: set[int] = set()
        self.timeouts: list[float] = []
        self.deadlines_ms: list[int | None] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.is_closed = False
        self._lock = threading.Lock()

    def send(self, request: EmbedRequest, timeout_s: float) -> dict[str, np.ndarray]:
        parameters = dict(request.parameters)
        deadline_ms = parameters.pop("deadline_ms", None)
        request = replace(request, parameters=parameters)
        with self._lock:
            self.deadlines_ms.append(deadline_ms)
            self.requests.append(request)
            self.threads.add(threading.get_ident())
            self.timeouts.append(timeout_s)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self.hook(request)
            return answer(request)
        finally:
            with self._lock:
                self.in_flight -= 1

    def open_stream(self) -> Any:
        self.streams.append(self.make_stream(self))
        return self.streams[-1]

    def close(self) -> None:
        self.is_closed = True


class FakeStream:
    """Answers a request row by row, last row first; of an even number of rows, the end comes alone."""

    def __init__(self, transport: FakeTransport) -> None:
        self.transport = transport
        self.waiting: queue.SimpleQueue[StreamAnswer] = queue.SimpleQueue()
        self.is_closed = False

    def send(self, request_id: str, request: EmbedRequest) -> None:
        self.transport.requests.append(request)
        self.transport.in_flight += 1
        self.transport.most_in_flight = max(self.transport.most_in_flight, self.transport.in_flight)
        try:
            self.transport.hook(request)
            outputs = answer(request)
        except LazuliError as error:
            self.waiting.put(StreamAnswer(request_id, {}, True, error))
            return
        rows = len(outputs["token_count"])
        for row in reversed(range(rows)):
            part = {name: values[[row]] for name, values in outputs.items() if name != "truncated"}
            part["index"] = np.array([[row]], np.int32)
            self.waiting.put(StreamAnswer(request_id, part, row == 0 and rows % 2 == 1))
        if rows % 2 == 0:
            self.waiting.put(StreamAnswer(request_id, {}, True))

    def receive(self, timeout_s: float) -> StreamAnswer:
        answered = self.waiting.get(timeout=5)
        if answered.is_final:
            self.transport.in_flight -= 1
        return answered

    def close(self) -> None:
        self.is_closed = True
        self.transport.in_flight = 0


class AsyncFakeTransport:
    """The asyncio face of a `FakeTransport`; `pause` is awaited in place of the network."""

    def __init__(self, inner: FakeTransport, pause: Callable[[EmbedRequest], Any] | None = None) -> None:
        self.inner = inner
        self.has_streams = inner.has_streams
        self.pause = pause
        self.in_flight = 0
        self.most_in_flight = 0

    async def send(self, request: EmbedRequest, timeout_s: float) -> dict[str, np.ndarray]:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.pause is not None:
                await self.pause(request)
            return self.inner.send(request, timeout_s)
        finally:
            self.in_flight -= 1

    def open_stream(self) -> Any:
        stream = self.inner.open_stream()

        async def send(request_id: str, request: EmbedRequest) -> None:
            stream.send(request_id, request)

        async def receive(timeout_s: float) -> StreamAnswer:
            return stream.receive(timeout_s)

        async def close() -> None:
            stream.close()

        return SimpleNamespace(send=send, receive=receive, close=close)

    async def close(self) -> None:
        self.inner.close()


@pytest.fixture
def fake() -> SimpleNamespace:
    """The fakes, as a fixture because test folders are no packages."""
    return SimpleNamespace(
        Transport=FakeTransport,
        Stream=FakeStream,
        AsyncTransport=AsyncFakeTransport,
        vector=vector,
        answer=answer,
        limit=TOKEN_LIMIT,
        width=WIDTH,
    )


@pytest.fixture
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Back-off delays are noted, not slept."""
    delays: list[float] = []

    async def note(delay_s: float) -> None:
        delays.append(delay_s)

    monkeypatch.setattr("lazuli_client.client.time.sleep", delays.append)
    monkeypatch.setattr("lazuli_client.aio.asyncio.sleep", note)
    return delays
