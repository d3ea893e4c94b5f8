"""Answers over HTTP that are not Triton's, from a server that sends whatever bytes it is told to."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from lazuli_client import (
    AsyncLazuliClient,
    ConnectionFailedError,
    DeadlineError,
    LazuliClient,
    ServerError,
    UnavailableError,
)

OUTPUT = {"name": "embedding", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}}
BINARY = json.dumps({"outputs": [OUTPUT]}).encode()


def answer(body: bytes, status: str = "200 OK", header: str = "", json_bytes: object = None) -> bytes:
    length = "" if json_bytes is None else f"Inference-Header-Content-Length: {json_bytes}\r\n"
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{length}{header}\r\n".encode() + body


ANSWERS = {
    "page": (answer(b"<html>\n<b>hello</b>"), ServerError, "received: <html> <b>hello</b>$"),
    "empty": (answer(b""), ServerError, "received: nothing$"),
    "list": (answer(b"[1,2]"), ServerError, r"received: \[1,2\]$"),
    "null": (answer(b"null"), ServerError, "received: null$"),
    "object": (answer(b"{}"), ServerError, "'outputs'.* received: {}$"),
    "word": (answer(b"{}", json_bytes="abc"), ServerError, "Content-Length is 'abc'"),
    "negative": (answer(b"{}", json_bytes=-3), ServerError, "Content-Length is '-3'"),
    "long": (answer(b"{}", json_bytes=3), ServerError, "Content-Length is '3', with a body of 2 bytes"),
    "missing": (answer(BINARY, json_bytes=len(BINARY)), ServerError, "size 0 into shape"),
    "short": (answer(BINARY + b"1234", json_bytes=len(BINARY)), ServerError, "size 1 into shape"),
    "odd": (answer(BINARY + b"123", json_bytes=len(BINARY)), ServerError, "multiple of element size"),
    "unmarked": (answer(BINARY), ServerError, "received: {"),
    "structured": (answer(b'{"error":{"a":1}}', "400 Bad Request"), ServerError, r'400: {"error":{"a":1}}$'),
    "binary": (answer(b"\x00\xfe\x1b[31m", "400 Bad Request"), ServerError, r"400: \\x00\\xfe\\x1b\[31m$"),
    "gateway": (answer(b"<html>down\n", "502 Bad Gateway"), UnavailableError, "HTTP status 502: <html>down$"),
    "moved": (answer(b"", "302 Found", "Location: /v2/models/moved/infer\r\n"), ServerError, "HTTP status 302$"),
    "no_http": (b"\x00\x1b[31m\r\n\r\n", ConnectionFailedError, r"\\x00\\+x1b\[31m"),
    "alert": (b"\x15\x03\x03\x00\x02\x02F", ConnectionFailedError, "perhaps the port wants TLS$"),
    "silent": (b"", ConnectionFailedError, "perhaps the port wants TLS$"),
}


@pytest.fixture(scope="module")
def server():
    """Sends the answer that has the name of the model; to `drip`, a header line now and then."""
    left = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            name = self.path.split("/")[3]
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" if name == "drip" else ANSWERS[name][0])
            if name == "drip":
                self.drip()

        def drip(self):
            try:
                for place in range(90):  # http.client takes up to 100
                    self.wfile.write(f"X-{place}: a\r\n".encode())
                    threading.Event().wait(0.1)
            except OSError:
                left.set()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_address[1]}", left=left)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_is_not_tritons_is_shown(server, name):
    _, kind, match = ANSWERS[name]
    settings = {"protocol": "http", "model": name, "retries": 0, "timeout_s": 20}
    with LazuliClient(server.url, **settings) as client, pytest.raises(kind, match=match) as caught:
        client.embed("a")
    assert type(caught.value) is kind
    assert str(caught.value).isprintable()
    async with AsyncLazuliClient(server.url, **settings) as client:
        with pytest.raises(kind, match=match) as caught:
            await client.embed("a")
    assert type(caught.value) is kind
    assert str(caught.value).isprintable()


async def test_the_timeout_holds_for_a_head_that_drips(server):
    settings = {"protocol": "http", "model": "drip", "timeout_s": 1.0}
    with LazuliClient(server.url, **settings) as client, pytest.raises(DeadlineError, match="within 1 s"):
        client.embed("a")
    assert server.left.wait(20)  # not set by a client that waits for the end
    server.left.clear()
    async with AsyncLazuliClient(server.url, **settings) as client:
        with pytest.raises(DeadlineError, match="within 1 s"):
            await client.embed("a")
    assert server.left.wait(20)
