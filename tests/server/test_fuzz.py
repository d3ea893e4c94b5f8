"""Thousands of malformed requests: each ends soon and as it may, and harms nobody.

`LAZULI_FUZZ` is the number of requests, to a `lazuli serve` that also reranks (`make fuzz` has 20,000, and others each
time); without it, a few hundred, the same each time.

Not sent is what ends Triton 24.10 itself, whoever serves with it: requests of unary and of decoupled models on one
stream, where a model that there is not counts as unary. It writes answers of both kinds at the same time, and then an
assertion of gRPC fails (`!byte_buffer->Valid()`, SIGABRT) or no more answers come; right requests are enough for that.
"""

import os
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from .fuzzing.asks import Ask, text_tensor
from .fuzzing.broken_http import broken_framing, broken_json
from .fuzzing.doors import Grpc, Http
from .fuzzing.mistakes import asks, model_name, version
from .fuzzing.oracle import judge, judge_body, judge_error, judge_framing
from .supervised import Supervised
from .test_rerank import write_bert

REQUESTS = int(os.environ.get("LAZULI_FUZZ", "400"))
IS_LONG = "LAZULI_FUZZ" in os.environ
# After so many requests, the server is looked at.
BATCH = 100
# Characters of a request that fails.
SHOWN = 3000
# For a longer one, Triton may just close the connection.
LONGEST_PATH = 4000
RERANK_STEPS = ["rerank.reranking", "rerank.rerank_tokenizer"]
UNARY = ["embed", "embedding", "tokenizer"]
DECOUPLED = ["embed_stream", "embedding_stream"]
pytestmark = [
    pytest.mark.timeout(7200 if IS_LONG else 300),
    # A request that fails is shown, however large.
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
]


class Neighbour(threading.Thread):
    """A client that does nothing wrong, beside those that do."""

    def __init__(self, address):
        super().__init__()
        self._grpc = Grpc(address)
        self.message = Ask("embed", [text_tensor([b"a well-known text", b"another one"])], 2).to_grpc()
        self.asked = 0
        self.failed, self.end = None, threading.Event()
        self.expected = self.ask()

    def ask(self):
        outcome = self._grpc.ask(self.message)
        assert outcome.is_answer, outcome
        return outcome.outputs[0]["embedding"]

    def run(self):
        while self.failed is None and not self.end.wait(0.02):
            try:
                np.testing.assert_allclose(self.ask(), self.expected, atol=1e-6)
                self.asked += 1
            except AssertionError as error:
                self.failed = error
        self._grpc.close()


class Target:
    """The server, its neighbour and its processes.

    `pids` tells the processes now. `more` are models beside the built-in ones.
    """

    def __init__(self, server, pids, more=()):
        self.grpc, self.http = Grpc(server.grpc), Http(server.http)
        self.unary = [*UNARY, *more]
        self.neighbour = Neighbour(server.grpc)
        self._pids = pids
        self._processes = pids()
        self.seen = Counter()
        self.neighbour.start()

    def count(self, door, outcome):
        self.seen[door] += 1
        self.seen[door, str(outcome.status)] += 1
        if self.seen[door] % BATCH == 0:
            self.assert_unharmed()

    def assert_unharmed(self):
        assert self._pids() == self._processes, "a process has ended"
        assert self.neighbour.failed is None, self.neighbour.failed
        np.testing.assert_allclose(self.neighbour.ask(), self.neighbour.expected, atol=1e-6)

    def close(self):
        self.neighbour.end.set()
        self.neighbour.join()
        self.grpc.close()
        self.http.close()
        print({str(key): count for key, count in self.seen.items()}, "neighbour:", self.neighbour.asked)


@contextmanager
def supervised(folder):
    """A server of its own, which reranks, too."""
    server = Supervised("--rerank-checkpoint", str(write_bert(folder / "cross-encoder", num_labels=1)))
    models = ["embedding", "embedding_stream", "tokenizer", *RERANK_STEPS]
    try:
        server.banner()
        yield Target(
            server,
            lambda: {name: server.stub(name).pid for name in models} | {"server": server.server().pid},
            ["rerank", *RERANK_STEPS],
        )
    finally:
        server.end()


@pytest.fixture(scope="module")
def target(request, tmp_path_factory):
    with ExitStack() as stack:
        if IS_LONG:
            found = stack.enter_context(supervised(tmp_path_factory.mktemp("fuzz")))
        else:
            server = request.getfixturevalue("server")
            found = Target(server, lambda: {(member.pid, member.model) for member in server.process.members()})
        stack.callback(found.close)
        yield found


def fuzz(share, *strategies):
    """Run a function on as many examples as its share of the requests."""

    def decorate(function):
        # Not made smaller, as each attempt might end the server; the same requests each time unless they are many.
        limits = settings(
            max_examples=max(1, int(share * REQUESTS)),
            deadline=None,
            database=None,
            derandomize=not IS_LONG,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        limits(given(*strategies)(function))()

    return decorate


def test_unary_calls(target):
    @fuzz(0.3, asks([*target.unary, *target.unary, *DECOUPLED]))
    def send(ask):
        note(repr(ask)[:SHOWN])
        outcome = target.grpc.ask(ask.to_grpc())
        target.count("gRPC", outcome)
        judge(ask, outcome)

    target.assert_unharmed()


@pytest.mark.parametrize("decoupled", [False, True], ids=["unary models", "decoupled models"])
def test_streams(target, decoupled):
    """Several requests at once on a stream: each ends, and the stream goes on, as long as it can be read."""
    models, without = (DECOUPLED, (model_name, version)) if decoupled else (target.unary, ())

    @fuzz(0.05, st.lists(asks(models, without), min_size=1, max_size=4))
    def send(several):
        note(repr(several)[:SHOWN])
        for number, ask in enumerate(several):
            ask.id = str(number)
        ends, end = target.grpc.ask_all([ask.to_grpc(readable=True) for ask in several])
        for number, outcome in ends:
            target.count("stream", outcome)
            judge(several[int(number)], outcome)
        assert end.status is grpc.StatusCode.OK, end
        assert sorted(number for number, _ in ends) == sorted(ask.id for ask in several)

    target.assert_unharmed()


def test_http(target):
    @fuzz(0.3, broken_json(target.unary))
    def send(request):
        note(repr(request)[:SHOWN])
        path, body, headers, words = request
        outcome = target.http.post(path, body, headers)
        target.count("HTTP", outcome)
        if len(path) > LONGEST_PATH:
            judge_framing(outcome, waited=True)
        elif outcome.is_answer:
            judge_body(outcome)
        else:
            judge_error(outcome, words)

    target.assert_unharmed()


def test_framing_of_http(target):
    @fuzz(0.15, broken_framing(target.unary))
    def send(request):
        note(repr(request)[:SHOWN])
        data, waits = request
        outcome = target.http.send_raw(data, end=waits)
        target.count("framing", outcome)
        judge_framing(outcome, waited=waits)

    target.assert_unharmed()


def test_bytes_that_are_no_message(target):
    @fuzz(0.05, st.binary(max_size=200), st.integers(0, 60))
    def send(noise, place):
        message = target.neighbour.message
        outcome = target.grpc.ask(message[:place] + noise + message[place + len(noise) :])
        target.count("bytes", outcome)
        if not outcome.is_answer:
            judge_error(outcome)

    target.assert_unharmed()


def test_a_message_that_cannot_be_read_ends_its_stream(target):
    """And nothing else: gRPC tells Triton no more than that there is no next message."""
    good = Ask("embed", [text_tensor([b"x"])], 1, id="0").to_grpc()
    ends, end = target.grpc.ask_all([good, b"\xff\xff", good])
    assert end.status is grpc.StatusCode.OK
    assert len(ends) < 3
    target.assert_unharmed()
