"""Clients that go away, read slowly or give up too soon: the others are served, and the server still stops."""

import http.client
import json
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from lazuli.launch.options import ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import DeadlineError, LazuliClient

from .conftest import assert_same_vectors
from .supervised import wait_for
from .wire import grpc_infer, http_infer, stream_parts, text_input

# A slow machine takes seconds to unload models, which count.
EXIT_TIMEOUT_S = 15
# An answer of as many rows as a request may have is several megabytes of JSON, more than sockets hold.
MOST_ROWS = 1024


@pytest.fixture(scope="module")
def left():
    """A server that many clients have left."""
    with running_server(ServeOptions(exit_timeout_s=EXIT_TIMEOUT_S)) as running:
        yield running


@pytest.fixture(scope="module")
def most(reference):
    """So many short texts that the answer fills sockets, with their vectors."""
    texts, expected = reference
    short = sorted(range(len(texts)), key=lambda row: len(texts[row]))[:16]
    rows = np.resize(short, MOST_ROWS)
    return [texts[row] for row in rows], expected[rows]


def connect(server):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    host, port = server.http.split(":")
    connection.connect((host, int(port)))
    return connection


def hang_up(connection):
    """Without a farewell, as when a machine loses its power."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def assert_serves(server, reference):
    texts, expected = reference[0][:8], reference[1][:8]
    assert_same_vectors(grpc_infer(server, texts)[0], expected)
    assert_same_vectors(http_infer(server, texts)[0], expected)
    (parts,) = stream_parts(server, [(texts, {})])
    assert sum(len(part.as_numpy("index")) for part in parts) == len(texts)


def wait_until_idle(server):
    """Nothing of what was left behind waits for ever."""

    def waiting():
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        queues = ("nv_inference_pending_request_count{", "lazuli_queue_tokens{")
        return [line for line in lines if line.startswith(queues) and float(line.rsplit(" ", 1)[1]) > 0]

    wait_for(lambda: not waiting(), "the queues to be empty")


def test_clients_of_unary_http_that_hang_up(left, reference, most):
    body = json.dumps({"text": most[0][:200]}).encode()
    head = b"POST /v2/models/embed/generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n".encode()
    for number in range(24):
        connection = connect(left)
        # After the whole request, in the middle of its body, or after its head.
        connection.sendall(head + (body, body[: len(body) // 2], b"")[number % 3])
        if number % 2:
            time.sleep(0.02)
        hang_up(connection)
    assert_serves(left, reference)
    wait_until_idle(left)


GONE = """
import sys
import tritonclient.grpc as triton_grpc
import numpy as np
text = triton_grpc.InferInput("text", [1024, 1], "BYTES")
text.set_data_from_numpy(np.array([[b"some words that are said again"]] * 1024, dtype=object))
client = triton_grpc.InferenceServerClient(sys.argv[1])
client.start_stream(lambda result, error: print("part", flush=True))
client.async_stream_infer("embed_stream", [text])
sys.stdin.read()
"""


def test_clients_that_are_killed_in_the_middle_of_a_stream(left, reference):
    gone = [
        subprocess.Popen([sys.executable, "-c", GONE, left.grpc], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for client in gone:
        with client:
            assert client.stdout.readline() == b"part\n"
            client.kill()
    assert_serves(left, reference)
    wait_until_idle(left)


def test_a_client_of_http_that_reads_slowly_gets_everything_and_holds_up_nobody(left, reference, most):
    texts, expected = most
    client = http.client.HTTPConnection(left.http)
    client.sock = connect(left)
    client.request("POST", "/v2/models/embed/generate", json.dumps({"text": texts}))
    answer = client.getresponse()
    read = b""
    for _ in range(5):
        read += answer.read(64)
        assert_serves(left, reference)
    values = json.loads(read + answer.read())["embedding"]
    client.close()
    assert_same_vectors(np.array(values, np.float32).reshape(len(texts), -1), expected)


def test_a_client_of_a_stream_that_reads_slowly_gets_everything_and_holds_up_nobody(left, reference, most):
    texts, expected = most
    vectors, seen, first, done = (
        np.zeros_like(expected),
        np.zeros(len(texts), int),
        threading.Event(),
        threading.Event(),
    )
    failed = []

    def receive(result, error):
        first.set()
        time.sleep(0.05)
        if error is not None:
            failed.append(error)
            done.set()
            return
        rows = result.as_numpy("index")[:, 0]
        vectors[rows] = result.as_numpy("embedding")
        seen[rows] += 1
        if seen.sum() == len(texts):
            done.set()

    with triton_grpc.InferenceServerClient(left.grpc) as client:
        client.start_stream(receive)
        client.async_stream_infer("embed_stream", [text_input(triton_grpc, texts)])
        assert first.wait(60)
        assert_serves(left, reference)
        assert done.wait(120)
        client.stop_stream()
    assert failed == []
    assert (seen == 1).all()
    assert_same_vectors(vectors, expected)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_deadlines_shorter_than_the_work(left, reference, most, protocol):
    url = left.grpc if protocol == "grpc" else left.http
    with LazuliClient(url, protocol=protocol, timeout_s=0.1, rows_per_request=MOST_ROWS) as client:
        for _ in range(6):
            with pytest.raises(DeadlineError):
                client.embed(most[0])
    assert_serves(left, reference)
    wait_until_idle(left)


def test_it_stops_in_good_order_after_all_that(left):
    """The last test here. What was left behind is not waited for."""
    assert left.process.stop(EXIT_TIMEOUT_S), "it had to be killed, or crashed"
    assert left.process.exit_code() == 0
