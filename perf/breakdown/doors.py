"""The doors that `bench_gateway.py` compares: how each is started, and how it is called.

Takes addresses and texts, returns functions that call once and tell their seconds.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from tritonclient.grpc import service_pb2_grpc

from breakdown import passing_on
from clients.keep_alive import JSON_HEADERS, KeepAlive
from clients.repeated_post import RepeatedPost
from lazuli.launch.preflight import free_ports
from lazuli_client import codec
from lazuli_client.grpc_transport import CHANNEL_OPTIONS
from lazuli_client.request import EmbedRequest, text_request
from peers.json_server import reachable
from peers.spec import Settings, TargetSpec

TEXT = "how do I keep my plants alive"
CHECKPOINT = "all-MiniLM-L6-v2"
Call = Callable[[], float]


@contextmanager
def direct(address: str, texts: Sequence[str]) -> Iterator[Call]:
    """A call of `embed` over gRPC, with numpy at the end."""
    request = request_of(texts)
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        yield timed(lambda: codec.from_grpc(stub.ModelInfer(codec.to_grpc(request), timeout=60)))


def request_of(texts: Sequence[str]) -> EmbedRequest:
    """The request for texts."""
    return text_request("embed", list(texts), {}, range(len(texts)))


@contextmanager
def posted(url: str, body: bytes) -> Iterator[Call]:
    """A POST over one connection; the seconds end with the last byte of the answer."""
    with closing(RepeatedPost(url, body)) as post:
        yield timed(post.send)


@contextmanager
def by_http_client(url: str, body: bytes) -> Iterator[Call]:
    """The same with `http.client`, as most applications in Python have it or something slower."""
    with closing(KeepAlive(url)) as connection:
        yield timed(lambda: connection.post("", body, JSON_HEADERS))


def timed(action: Callable[[], object]) -> Call:
    """Does it and tells its seconds."""

    def call() -> float:
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    return call


def body_of(url: str, texts: Sequence[str], model: str = "embed", encoding: str = "float") -> bytes:
    """What a URL takes: text-embeddings-inference's message for `/embed`, else OpenAI's."""
    if url.endswith("/embed"):
        return json.dumps({"inputs": texts}).encode()
    return json.dumps({"model": model, "input": texts, "encoding_format": encoding}).encode()


@contextmanager
def gateway(address: str, *arguments: str) -> Iterator[str]:
    """A gateway in a process of its own; gives its URL for embeddings."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "lazuli_client", "gateway", "--replica", address, "--port", str(port), *arguments]
    with _started(command, port):
        yield f"http://127.0.0.1:{port}/v1/embeddings"


@contextmanager
def bytes_passed_on(address: str) -> Iterator[str]:
    """The application that only passes bytes on; gives its URL."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(Path(__file__).parents[1]), "--port", str(port)]
    command += ["--no-access-log", "breakdown.passing_on:app"]
    with _started(command, port, {passing_on.ENVIRONMENT: address}):
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def _started(command: Sequence[str], port: int, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        try:
            _wait_until_listening(process, port)
            yield
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not listen")


def peer_call(spec: TargetSpec, texts: Sequence[str]) -> AbstractContextManager[Call]:
    """A call of another server; `model` is its option."""
    url = spec.address or ""
    return posted(url, body_of(url, texts, spec.options.get("model", "")))


@contextmanager
def open_peer(spec: TargetSpec) -> Iterator[None]:
    """Another server, once it answers; one with `command` is started and stopped."""
    spec.check_options("model", "command")
    body = body_of(spec.address or "", [TEXT], spec.options.get("model", ""))
    with reachable(spec, Settings(CHECKPOINT), lambda connection: connection.post("", body, JSON_HEADERS)):
        yield


@contextmanager
def idle_connections(url: str, count: int) -> Iterator[None]:
    """Connections that have asked for something once and then say nothing."""
    parts = urlsplit(url)
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=30))
            one.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            if not one.recv(4096).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("an idle connection was refused")
        yield
