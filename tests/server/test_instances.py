"""Two instances of an engine, as on a machine with two GPUs, but on CPUs: both work, and answers are the same."""

import os
import re
import shutil
import signal
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from .conftest import assert_same_vectors
from .supervised import Supervised, load
from .test_overload import is_unavailable
from .wire import grpc_infer

REPOSITORY = Path(__file__).parents[2] / "model_repository"
# What an instance may have waiting before Triton has to give work to the other one: about a request.
QUEUED_TOKENS = 512
CLIENTS = 8
REQUESTS_EACH = 3
ROWS = 20
# What it may have waiting before it refuses more: the requests of the other tests fit.
WAITING_TOKENS = 24576
LIMITS = {"max_queued_tokens": QUEUED_TOKENS, "token_budget": QUEUED_TOKENS, "max_waiting_tokens": WAITING_TOKENS}


@pytest.fixture(scope="module")
def two_engines(tmp_path_factory):
    repository = tmp_path_factory.mktemp("two") / "model_repository"
    shutil.copytree(REPOSITORY, repository)
    config = repository / "embedding" / "config.pbtxt"
    text = replaced(config.read_text(encoding="utf-8"), "kind: KIND_AUTO, count: 1", "kind: KIND_CPU, count: 2")
    for name, limit in LIMITS.items():
        start = f'"{name}", value: {{ string_value: '
        text = replaced(text, f'{start}"auto"', f'{start}"{limit}"')
    config.write_text(text, encoding="utf-8")
    # Without probes, as texts are counted; a process that dies is seen all the same.
    started = Supervised("--door=unary", "--threads=1", "--probe-interval=0", f"--model-repository={repository}")
    try:
        started.banner()
        yield started
    finally:
        started.end()


def replaced(text, old, new):
    assert text.count(old) == 1
    return text.replace(old, new)


def texts_by_instance(server):
    """How many texts each instance of the engine has answered, once both have published since now."""
    moment, deadline = time.time(), time.monotonic() + 20
    while True:
        published = values_by_instance(server, "lazuli_published_timestamp_seconds")
        if min(published.values()) > moment:
            return values_by_instance(server, "lazuli_texts_total", 'outcome="ok"')
        assert time.monotonic() < deadline, "the metrics are not brought up to date"
        time.sleep(0.1)


def values_by_instance(server, name, label=""):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {
        re.search(r'model_instance="([^"]*)"', line)[1]: float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith(name + "{") and 'model="embedding"' in line and label in line
    }


def wait_for_texts(server, before, expected):
    """What came since, once so many texts are counted: that may be after the answer."""
    deadline = time.monotonic() + 20
    while True:
        shares = {name: count - before[name] for name, count in texts_by_instance(server).items()}
        if sum(shares.values()) >= expected or time.monotonic() > deadline:
            return shares


def test_both_have_a_fair_share_and_answer_alike(two_engines, reference):
    texts, expected = reference
    before, start = texts_by_instance(two_engines), threading.Barrier(CLIENTS)
    assert len(before) == 2

    def client(number):
        start.wait(timeout=60)
        for turn in range(REQUESTS_EACH):
            first = (number * REQUESTS_EACH + turn) * ROWS % (len(texts) - ROWS)
            rows = slice(first, first + ROWS)
            assert_same_vectors(grpc_infer(two_engines, texts[rows])[0], expected[rows])

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(client, range(CLIENTS)))
    asked = CLIENTS * REQUESTS_EACH * ROWS
    shares = wait_for_texts(two_engines, before, asked)
    assert sum(shares.values()) == asked
    assert min(shares.values()) >= asked / 4, shares


def test_a_request_of_many_rows_does_not_keep_the_other_engine_from_working(two_engines, reference):
    """One instance blocks on what it has; small requests that come meanwhile are answered before that is done."""
    texts, expected = reference
    order = []

    def ask(name, some):
        vectors = grpc_infer(two_engines, some)[0]
        order.append(name)
        return vectors

    with ThreadPoolExecutor(2) as clients:
        large = clients.submit(ask, "large", (texts * 5)[:400])
        time.sleep(0.3)
        small = clients.submit(ask, "small", texts[:2])
        assert_same_vectors(small.result(timeout=120), expected[:2])
        assert large.result(timeout=120).shape == (400, 384)
    assert order == ["small", "large"]


def test_too_much_for_both_is_refused_and_the_rest_answered(two_engines, reference):
    """What waits in Triton's queue, because both are full, is no way around their limits."""
    texts, expected = (one[:60] for one in reference)
    clients = 64
    start = threading.Barrier(clients)

    def client(number):
        start.wait(timeout=60)
        try:
            vectors = grpc_infer(two_engines, texts, workload="bulk")[0]
        except InferenceServerException as error:
            if not is_unavailable(error):
                raise
            return "refused"
        assert_same_vectors(vectors, expected)
        return "answered"

    before = texts_by_instance(two_engines)
    with ThreadPoolExecutor(clients) as threads:
        outcomes = Counter(threads.map(client, range(clients)))
    assert outcomes["refused"] > 0
    asked = outcomes["answered"] * len(texts)
    shares = wait_for_texts(two_engines, before, asked)
    assert sum(shares.values()) == asked
    assert min(shares.values()) > 0, shares
    assert_same_vectors(grpc_infer(two_engines, texts)[0], expected)


def test_one_of_them_is_killed_under_load(two_engines, reference):
    """The last test here. The server starts again, and says so; no request of a client that retries is lost."""
    with load(two_engines, reference):
        os.kill(two_engines.stub("embedding").pid, signal.SIGKILL)
        two_engines.wait_until(False)
        two_engines.wait_until(True)
    assert [event["reason"] for event in two_engines.events("restart")] == ["the process of embedding died"]
    assert len(texts_by_instance(two_engines)) == 2
