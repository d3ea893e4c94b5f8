"""The benchmark of the gateway, without a server."""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import bench_gateway
from breakdown.doors import body_of, by_http_client, posted


def test_turns_are_taken_in_any_order_and_the_first_do_not_count():
    order = []

    def call(name):
        return lambda: order.append(name) or len(order) / 1e3

    samples = bench_gateway.in_turns({"a": call("a"), "b": call("b")}, repeats=30)
    turns = [tuple(order[place : place + 2]) for place in range(0, 100, 2)]
    assert set(turns) == {("a", "b"), ("b", "a")}
    assert {name: len(values) for name, values in samples.items()} == {"a": 30, "b": 30}
    assert sorted(samples["a"] + samples["b"]) == [float(number) for number in range(41, 101)]


def test_encoders_are_compared(capsys):
    lines = bench_gateway.measure_encoding(argparse.Namespace(repeats=2))
    assert [len(line.samples_ms) for line in lines] == [2] * 5
    assert {line.protocol for line in lines} >= {"json", "orjson of numpy", "pybase64 of numpy"}
    assert "100 x 1024" in capsys.readouterr().out


@pytest.fixture
def url():
    """A server that answers 200 to what says `model`, in pieces, and keeps the connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = b"a" * 300_000
            self.send_response(200 if b"model" in body else 400)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[:100])
            self.wfile.write(answer[100:])

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/embeddings"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("way", [posted, by_http_client])
def test_each_answer_is_read_to_its_end(url, way):
    with way(url, body_of(url, ["a"])) as call:
        assert call() > 0
        assert call() > 0
    with way(url, b"{}") as call, pytest.raises(RuntimeError, match="400"):
        call()


def test_the_message_follows_the_path():
    assert json.loads(body_of("http://a/embed", ["b"])) == {"inputs": ["b"]}
    message = {"model": "m", "input": ["b"], "encoding_format": "base64"}
    assert json.loads(body_of("http://a/embeddings", ["b"], "m", "base64")) == message
