"""A server with short queues under too much load: refusals come at once, admitted requests are answered."""

import asyncio
import os
import re
import shutil
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import AsyncLazuliClient, UnavailableError, codec
from lazuli_client.request import token_request

from .conftest import assert_same_vectors
from .supervised import wait_for
from .test_metrics import changes, published_since
from .wire import DOORS, HttpError, grpc_infer

REPOSITORY = Path(__file__).parents[2] / "model_repository"
CLIENTS = 48
REFUSAL = re.compile("Exceeds maximum queue (size|time)")
# How long the storm lasts; a minute and more by hand.
STORM_S = float(os.environ.get("LAZULI_OVERLOAD_S", "5"))
# What no answer takes: whoever waits for longer waits for ever.
PATIENCE_S = 60.0


@contextmanager
def limited(folder, **limits):
    """A server on the committed repository, with other limits in its engines."""
    repository = folder / "model_repository"
    shutil.copytree(REPOSITORY, repository)
    for model in ("embedding", "embedding_stream"):
        config = repository / model / "config.pbtxt"
        text = config.read_text()
        for name, limit in limits.items():
            old = f'"{name}", value: {{ string_value: "auto"'
            assert text.count(old) == 1
            text = text.replace(old, old.replace("auto", str(limit)))
        config.write_text(text)
    with running_server(ServeOptions(model_repositories=(repository,), door=Door.BOTH)) as running:
        yield running


@pytest.fixture(scope="module")
def small_server(tmp_path_factory):
    """With room for little."""
    limits = {"max_waiting_tokens": 24576, "max_queued_tokens": 256, "token_budget": 256}
    with limited(tmp_path_factory.mktemp("small"), **limits) as running:
        yield running


@pytest.fixture(scope="module")
def brief_server(tmp_path_factory):
    """Where nothing may wait for long, and not much."""
    limits = {"max_queue_ms": 200, "max_waiting_tokens": 8192}
    with limited(tmp_path_factory.mktemp("brief"), **limits) as running:
        yield running


def is_unavailable(error):
    """Triton 24.10 says 400 for every error at `generate`, and gives no code on a stream: there the text must do."""
    if isinstance(error, HttpError):
        return error.status in (503, 400, None) and "Exceeds maximum queue size" in error.text
    codes = ("StatusCode.UNAVAILABLE", "503", None)
    return error.status() in codes and "Exceeds maximum queue size" in error.message()


@pytest.mark.parametrize("door", DOORS, ids=list(DOORS))
def test_overload_is_refused_and_the_rest_answered(small_server, reference, door):
    texts, expected = reference
    texts, expected = texts[:60], expected[:60]
    order, start = [], threading.Barrier(CLIENTS)

    def client(number):
        start.wait()
        try:
            vectors, _ = DOORS[door](small_server, texts)
        except (InferenceServerException, HttpError) as error:
            if not is_unavailable(error):
                raise
            order.append("refused")
            return
        order.append("answered")
        assert_same_vectors(vectors, expected)

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(client, range(CLIENTS)))
    assert order.count("refused") > 0
    assert order.count("answered") >= 3
    # At once: nobody who is refused waits for those who are served.
    assert order.index("refused") < len(order) - 1 - order[::-1].index("answered")
    assert_same_vectors(grpc_infer(small_server, texts)[0], expected)


def test_what_is_given_up_makes_room(small_server):
    """Its tokens no longer count, so others need not wait until all of it would have been computed."""

    def ask(rows):
        ids = [np.full(512, 2003, np.int32)] * rows
        return stub.ModelInfer.future(codec.to_grpc(token_request("embedding", ids, {"workload": "bulk"}, range(rows))))

    def is_taken():
        try:
            return codec.from_grpc(ask(1).result(timeout=PATIENCE_S))["embedding"].shape == (1, 384)
        except grpc.RpcError as error:
            if "Exceeds maximum queue size" not in error.details():
                raise
            return False

    before = published_since(small_server, time.time())
    with grpc.insecure_channel(small_server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        large = ask(1024)
        wait_for(lambda: not is_taken(), "the queue to be full")
        large.cancel()
        wait_for(is_taken, "the queue to have room")
    changed = changes(before, published_since(small_server, time.time()))
    assert changed["lazuli_requests_total", "embedding", "cancelled"] == 1
    assert changed["lazuli_batch_tokens_sum", "embedding"] < 512 * 1024 / 2


def test_a_text_longer_than_the_budget_runs_alone(small_server, sentence_transformer):
    """TEI#723: 256 tokens fill the budget exactly; pre-tokenised rows may be longer than it."""
    import tritonclient.grpc as triton_grpc

    from .wire import make_input

    ids, mask = np.full((3, 512), 2003, dtype=np.int32), np.ones((3, 512), dtype=np.int8)
    inputs = [
        make_input(triton_grpc, "input_ids", ids, "INT32"),
        make_input(triton_grpc, "attention_mask", mask, "INT8"),
    ]
    with triton_grpc.InferenceServerClient(small_server.grpc) as client:
        vectors = client.infer("embedding", inputs, client_timeout=60).as_numpy("embedding")
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)


class Storm:
    """Requests of one text and of some, by all ways into a server, at a rate that does not care about answers."""

    def __init__(self, server, reference):
        self.texts, self.expected = reference
        settings = {"retries": 0, "max_in_flight": 100_000}
        self.clients = [
            AsyncLazuliClient(server.grpc, **settings),
            AsyncLazuliClient(server.http, protocol="http", **settings),
        ]
        self.outcomes = Counter()
        self.sent = 0

    async def ask(self):
        """One request, whose answer is looked at; returns whether there was one."""
        number, self.sent = self.sent, self.sent + 1
        first = number % (len(self.texts) - 24)
        rows = slice(first, first + (1, 24)[number % 2])
        try:
            vectors = await asyncio.wait_for(self._vectors(number // 2 % 3, self.texts[rows]), PATIENCE_S)
        except UnavailableError as error:
            self.outcomes[REFUSAL.search(str(error))[0]] += 1
            return False
        assert_same_vectors(vectors, self.expected[rows])
        self.outcomes["answered"] += 1
        return True

    async def _vectors(self, way, texts):
        if way < 2:
            return (await self.clients[way].embed(texts)).embeddings
        parts = [part async for part in self.clients[0].embed_iter(texts)]
        order = np.argsort(np.concatenate([part.indices for part in parts]))
        return np.concatenate([part.embeddings for part in parts])[order]

    async def rate(self, seconds=2.0):
        """Answers a second when a few clients wait for theirs."""

        async def client():
            while time.monotonic() < end:
                await self.ask()

        end = time.monotonic() + seconds
        await asyncio.gather(*(client() for _ in range(4)))
        return self.outcomes["answered"] / seconds

    async def blow(self, rate, seconds):
        """Send at a rate, then wait for everybody; raises what was neither a right answer nor a refusal."""
        asked, start = [], time.monotonic()
        while (passed := time.monotonic() - start) < seconds:
            while len(asked) < rate * passed:
                asked.append(asyncio.create_task(self.ask()))
            await asyncio.sleep(0.005)
        await asyncio.gather(*asked)

    async def run(self):
        """Ten times what the server can do."""
        try:
            await self.blow(10 * await self.rate(), STORM_S)
            assert await self.ask(), "the server did not recover"
        finally:
            for client in self.clients:
                await client.close()


def test_ten_times_too_much(brief_server, reference):
    """Each gets a right answer or is told that there is none now: nobody waits for ever, and nothing is lost."""
    before = published_since(brief_server, time.time())
    storm = Storm(brief_server, reference)
    asyncio.run(storm.run())
    print(f"{storm.sent} requests: {dict(storm.outcomes)}")
    assert storm.outcomes.total() == storm.sent
    assert set(storm.outcomes) - {"answered"} <= {"Exceeds maximum queue size", "Exceeds maximum queue time"}
    refused = storm.sent - storm.outcomes["answered"]
    assert min(refused, storm.outcomes["answered"]) > storm.sent / 20
    counted = Counter()
    after = published_since(brief_server, time.time())
    for (metric, _, *labels), change in changes(before, after).items():
        if metric == "lazuli_requests_total" and labels[0] in ("ok", "OverloadedError"):
            counted[labels[0]] += change
    assert not sum(value for (metric, *_), value in after.items() if metric == "lazuli_queue_tokens")
    # The tokenizers, in front of them, answered all.
    assert counted == {"ok": storm.outcomes["answered"] + storm.sent, "OverloadedError": refused}
