"""The closed loop, against a server of plain HTTP that answers in this process."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from load_generator import Load, LoadGenerator, spread

WORDS = [f"word{letter}" for letter in "abcdefghij"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.paths.append(self.path)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.paths, server.status, server.daemon_threads = [], 200, True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server.address = f"127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def generator():
    with LoadGenerator(WORDS, 1, processes=2, clients_a_process=2) as generator:
        yield generator


@pytest.mark.parametrize(
    ("clients", "shares"), [(1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2]), (5, [2, 2, 1]), (7, [3, 2, 2])]
)
def test_clients_are_spread_over_processes(clients, shares):
    assert spread(clients, 2, 3) == shares


def test_every_client_sends_its_rounds(server, generator):
    result = generator.run(Load("http", server.address, length=0, concurrency=3, rounds=7))
    assert len(result.samples_ms) == 21
    assert result.processes == 2
    assert min(result.samples_ms) > 0
    # One request more of each client opens its connection.
    assert server.paths == ["/v2/health/live"] * 24


def test_by_time_only_what_was_answered_in_time_counts(server, generator):
    result = generator.run(Load("http", server.address, length=0, concurrency=2, seconds=0.3))
    assert result.wall_s == pytest.approx(0.3)
    assert 0 < len(result.samples_ms) <= len(server.paths) - 2
    assert sum(result.samples_ms) <= 2 * 300


def test_a_refusal_is_raised_and_the_next_run_goes_on(server, generator):
    server.status = 503
    with pytest.raises(RuntimeError, match="HTTP 503"):
        generator.run(Load("http", server.address, length=0, concurrency=3, rounds=1))
    server.status = 200
    assert generator.run(Load("http", server.address, length=0, rounds=2)).processes == 1
