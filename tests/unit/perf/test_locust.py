"""Traffic, goals and lines of a locust run; locust itself, which patches all of Python, in a process of its own."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from lazuli_client import ServerError
from swarm.goals import Goals, to_measurements
from swarm.traffic import BULK, KINDS, QUERY, RERANK, SHAPES, Traffic, check_answer, users_at, weights_of

LOCUSTFILE = Path(__file__).parents[3] / "perf" / "locustfile.py"


@pytest.fixture
def traffic():
    return Traffic(["a query", "another"], ["a passage", "one more"], "rerank-model", "0")


@pytest.mark.parametrize(("kind", "rows"), [(QUERY, 1), (BULK, 32)])
def test_texts_are_embedded(traffic, kind, rows):
    request = traffic.make(kind)
    assert request.model == "embed"
    assert request.tensors["text"].shape == (rows, 1)
    assert request.parameters == {"truncate": "end"}


def test_queries_are_short_texts_and_bulk_is_passages(traffic):
    assert {traffic.make(QUERY).tensors["text"][0, 0] for _ in range(30)} == {b"a query", b"another"}
    assert set(traffic.make(BULK).tensors["text"][:, 0]) == {b"a passage", b"one more"}


def test_one_query_is_paired_with_all_documents(traffic):
    request = traffic.make(RERANK)
    assert request.model == "rerank-model"
    assert len(set(request.tensors["query"][:, 0])) == 1
    assert request.tensors["document"].shape == (16, 1)


def test_the_same_seed_asks_the_same():
    first, second = (Traffic(list("abcdef"), list("ghijkl"), "rerank", "7").make(BULK).tensors["text"] for _ in "12")
    assert (first == second).all()


def test_mixed_traffic_reranks_where_it_can():
    assert RERANK not in weights_of("mixed", False)
    assert weights_of("mixed", True)[RERANK] > 0
    assert weights_of("query", True) == {QUERY: 1}
    assert {kind for weights in SHAPES.values() for kind in weights} == set(KINDS)


def outputs(vectors):
    count = len(vectors)
    return {"embedding": np.array(vectors, np.float32), "token_count": np.ones((count, 1), np.int32)}


def test_unit_vectors_are_right(traffic):
    check_answer(traffic.make(QUERY), outputs([[0.6, 0.8]]))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (outputs([[0.6, 0.9]]), "unit length"),
        (outputs([[1, 0], [1, 0]]), "for 1 rows"),
        ({"token_count": np.ones((1, 1), np.int32)}, "lacks"),
    ],
)
def test_other_answers_are_failures(traffic, answer, error):
    with pytest.raises((ValueError, ServerError), match=error):
        check_answer(traffic.make(QUERY), answer)


def test_scores_are_checked(traffic):
    request = traffic.make(RERANK)
    check_answer(request, {"score": np.zeros((16, 1), np.float32)})
    with pytest.raises(ValueError, match="not finite"):
        check_answer(request, {"score": np.full((16, 1), np.nan, np.float32)})
    with pytest.raises(ValueError, match=r"shape \[15, 1\]"):
        check_answer(request, {"score": np.zeros((15, 1), np.float32)})


@pytest.mark.parametrize(("elapsed_s", "users"), [(0, 2), (3.9, 2), (4, 10), (5.9, 10), (6, 2), (9.9, 2), (10, 0)])
def test_a_spike_is_in_the_middle(elapsed_s, users):
    assert users_at(elapsed_s, 10, 2, 10) == users


def samples(times, kind=QUERY, failed=False):
    return [("grpc", kind.name, time_ms, failed) for time_ms in times]


def missed(goals, members, wall_s=1.0):
    return list(goals.missed(members, wall_s))


def test_goals_that_are_reached():
    assert missed(Goals(10, 0, 100), samples([5] * 100)) == []


def test_no_request_reaches_no_goal():
    assert missed(Goals(10), []) == ["there was no request"]


def test_a_late_tail():
    assert missed(Goals(p99_ms=10), samples([5] * 95 + [50] * 5)) == [
        "p99 of 100 requests is 50.0 ms, and it may be 10"
    ]


def test_nobody_waits_for_bulk():
    members = samples([5] * 10) + samples([900] * 10, BULK)
    assert missed(Goals(p99_ms=10), members) == []
    assert missed(Goals(p99_ms=10), samples([900] * 10, BULK)) == ["p99 of 10 requests is 900.0 ms, and it may be 10"]


def test_failures_count_even_if_only_another_goal_is_set():
    members = samples([5] * 99) + samples([1], failed=True)
    assert missed(Goals(p99_ms=10), members) == ["1.00% of 100 requests failed, and 0.00% may"]
    assert missed(Goals(p99_ms=10, failures=0.01), members) == []


def test_failures_have_no_latency_and_no_throughput():
    assert missed(Goals(10, 1.0), samples([5]) + samples([9000], failed=True)) == []
    members = samples([5] * 2) + samples([5] * 50, failed=True)
    assert missed(Goals(failures=1.0, texts_per_s=3), members) == ["2.0 texts/s, and it should be 3 or more"]


def test_texts_are_counted_and_not_requests():
    assert missed(Goals(texts_per_s=64), samples([5] * 2, BULK)) == []
    assert missed(Goals(texts_per_s=64), samples([5] * 2, BULK), wall_s=1.1) != []


def test_goals_are_optional():
    assert not Goals().any
    assert Goals(failures=0.0).any


def test_each_kind_and_protocol_has_a_line():
    members = samples([1.0, 2.0]) + samples([3.0], failed=True) + [("http", BULK.name, 9.0, False)]
    members += samples([4], RERANK, failed=True)  # nothing to tell of those but that they failed
    lines = [json.loads(line.to_line()) for line in to_measurements(members, 2.0, "mixed", 4)]
    assert [(line["protocol"], line["batch"], line["samples_ms"]) for line in lines] == [
        ("grpc", 1, [1, 2]),
        ("http", 32, [9]),
    ]
    assert lines[0]["extra"] == {"failures": 1}
    assert lines[0]["emb_per_s"] == 1
    assert lines[1]["emb_per_s"] == 16


class Handler(BaseHTTPRequestHandler):
    """Answers each text with a vector of unit length, as Triton would."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = np.array([0.6, 0.8], np.float32).tobytes() + np.ones(1, np.int32).tobytes()
        described = [("embedding", "FP32", [1, 2], 8), ("token_count", "INT32", [1, 1], 4)]
        entries = [
            {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
            for name, datatype, shape, size in described
        ]
        header = json.dumps({"model_name": "embed", "model_version": "1", "outputs": entries}).encode()
        self.send_response(200)
        self.send_header("Inference-Header-Content-Length", str(len(header)))
        self.send_header("Content-Length", str(len(header) + len(body)))
        self.end_headers()
        self.wfile.write(header + body)

    def log_message(self, *arguments):
        pass


class SlowHandler(Handler):
    """Takes longer than a run."""

    def do_POST(self):
        time.sleep(3)
        super().do_POST()


@contextlib.contextmanager
def serving(handler):
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def address():
    with serving(Handler) as url:
        yield url


def run_locust(*arguments, **environment):
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary", "-t", "2s"]
    done = subprocess.run(
        [*command, *arguments], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_a_run_that_reaches_its_goals(address):
    arguments = ("--host", address, "--protocol", "http", "-u", "2", "-r", "2")
    status, text = run_locust(*arguments, "--slo-failures", "0", "--slo-texts-per-s", "0.1", LAZULI_SHAPE="query")
    assert (status, "all goals are reached" in text) == (0, True), text
    assert "HttpQuery" in text
    assert "Bulk" not in text


def test_requests_that_are_under_way_at_the_end_are_waited_for():
    with serving(SlowHandler) as url:
        arguments = ("--host", url, "--protocol", "http", "--shape", "query", "-u", "2", "-r", "2")
        status, text = run_locust(*arguments, "--slo-failures", "0")
    assert (status, "all goals are reached by 2 requests" in text) == (0, True), text


def test_a_run_that_misses_its_goals_ends_with_1():
    # The port of discard: nobody is there. gRPC's failures are in the statistics, too.
    arguments = ("--host", "http://127.0.0.1:9", "--grpc-host", "127.0.0.1:9", "--shape", "query", "-u", "2", "-r", "2")
    status, text = run_locust(*arguments, "--slo-failures", "0.5")
    assert (status, "missed: 100.00%" in text) == (1, True), text
    assert "gRPC     query: 1 text" in text
    assert "POST     query: 1 text" in text
