"""The processes of the load, against a server of plain HTTP that answers in this process."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clients.generator import LoadGenerator, spread
from clients.load import Load
from peers.lazuli_server import LazuliEndpoint
from texts.rows import RowSpec

SPEC = RowSpec(tuple(f"word{letter}" for letter in "abcdefghij"), 1)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.paths.append(self.path)
        refused = len(self.server.paths) >= self.server.refuses_from
        self.send_response(503 if refused else self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.paths, server.status, server.daemon_threads = [], 200, True
        server.refuses_from = 10**9
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server.address = f"127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def generator():
    with LoadGenerator(SPEC, processes=2, clients_a_process=2) as generator:
        yield generator


def health(server, **load):
    return Load(LazuliEndpoint("http", server.address), None, **load)


@pytest.mark.parametrize(
    ("clients", "shares"), [(1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2]), (5, [2, 2, 1]), (7, [3, 2, 2])]
)
def test_clients_are_spread_over_processes(clients, shares):
    assert spread(clients, 2, 3) == shares


def test_every_client_sends_its_rounds(server, generator):
    result = generator.run(health(server, concurrency=3, rounds=7))
    assert len(result.samples_ms) == 21
    assert result.processes == 2
    assert min(result.samples_ms) > 0
    # One request more of each client opens its connection.
    assert server.paths == ["/v2/health/live"] * 24


def test_by_time_only_what_was_answered_in_time_counts(server, generator):
    result = generator.run(health(server, concurrency=2, seconds=1.0))
    assert result.wall_s == pytest.approx(1.0)
    assert 0 < len(result.samples_ms) <= len(server.paths) - 2
    assert sum(result.samples_ms) <= 2 * 1000


def test_a_refusal_is_raised_and_the_next_run_goes_on(server, generator):
    server.status = 503
    with pytest.raises(RuntimeError, match="HTTP 503"):
        generator.run(health(server, concurrency=3, rounds=1))
    server.status = 200
    assert generator.run(health(server, rounds=2)).processes == 1


def test_untimed_requests_are_sent_and_not_counted(server, generator):
    result = generator.run(health(server, concurrency=2, rounds=3, untimed=2))
    assert len(result.samples_ms) == 6
    assert len(server.paths) == 2 * (1 + 2 + 3)
    assert result.at_s[0] == 0


def test_what_settles_is_not_counted(server, generator):
    result = generator.run(health(server, seconds=0.1, settle_s=0.2))
    assert result.wall_s == pytest.approx(0.1)
    assert 0 < len(result.samples_ms) < len(server.paths) / 2


def test_an_open_loop_sends_what_is_due_however_many_processes_share_it(server, generator):
    result = generator.run(health(server, concurrency=8, seconds=1.0, rate=200.0))
    assert result.processes == 2
    assert 130 < len(result.samples_ms) < 270  # 5 standard deviations
    assert len(server.paths) == len(result.samples_ms) + 8


def test_an_open_loop_goes_on_after_a_refusal(server, generator):
    server.refuses_from = 30
    (result,) = generator.run_together([health(server, concurrency=4, seconds=0.5, rate=200.0)])
    assert len(result.samples_ms) == 25  # four more were to connect
    assert result.failed > 20
    assert "HTTP 503" in result.errors[0]


def test_two_loads_at_once_are_told_apart(server, generator):
    few, many = generator.run_together([health(server, rounds=5), health(server, concurrency=2, rounds=40)])
    assert (len(few.samples_ms), len(many.samples_ms)) == (5, 80)


def test_after_a_process_that_cannot_connect_the_others_wait_again(server, generator):
    nobody = Load(LazuliEndpoint("http", "127.0.0.1:9"), None, rounds=1)
    with pytest.raises(RuntimeError, match="ConnectionRefusedError"):
        generator.run_together([health(server, rounds=1), nobody])
    assert len(generator.run(health(server, concurrency=3, rounds=1)).samples_ms) == 3
