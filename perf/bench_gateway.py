"""What the gateway adds to a call, and what its parts cost.

Starts a server, a gateway that tokenises and one that does not, and takes turns between calling Triton's gRPC directly
and each gateway, over one connection each, so that what the machine does meanwhile meets all of them alike:

    python perf/bench_gateway.py --machine cpu-2core

Writes raw samples like the other benchmarks. `--idle 10000` opens so many connections that say nothing and measures
again. `--encode` compares libraries that write JSON and base64, without a server.
"""

import argparse
import base64
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import numpy as np
import orjson
import pybase64
from tritonclient.grpc import service_pb2_grpc

import lazuli
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.preflight import free_ports
from lazuli.launch.running import running_server
from lazuli_client import codec
from lazuli_client.grpc_transport import CHANNEL_OPTIONS
from lazuli_client.request import text_request
from measurement import Measurement, write

TEXT = "how do I keep my plants alive"
CHECKPOINT = "all-MiniLM-L6-v2"
Call = Callable[[], float]


def direct(address: str, texts: Sequence[str]) -> Call:
    """A call of `embed` over gRPC, with numpy at the end; returns its seconds."""
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(address, options=CHANNEL_OPTIONS))
    request = text_request("embed", list(texts), {}, range(len(texts)))

    def call() -> float:
        start = time.perf_counter()
        codec.from_grpc(stub.ModelInfer(codec.to_grpc(request), timeout=60))
        return time.perf_counter() - start

    return call


def through(port: int, texts: Sequence[str], encoding: str) -> Call:
    """A call of `/v1/embeddings` over one connection; returns its seconds until the last byte has come."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = json.dumps({"model": "embed", "input": list(texts), "encoding_format": encoding}).encode()

    def call() -> float:
        start = time.perf_counter()
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
        seconds = time.perf_counter() - start
        if answer.status != 200:
            raise RuntimeError(data.decode())
        return seconds

    return call


def in_turns(calls: dict[str, Call], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each, after some that do not count."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 20):
        for name, call in calls.items():
            milliseconds = call() * 1e3
            if turn >= 20:
                samples[name].append(milliseconds)
    return samples


@contextmanager
def gateway(address: str, *arguments: str) -> Iterator[int]:
    """A gateway in a process of its own; gives its port."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "lazuli_client", "gateway", "--replica", address, "--port", str(port), *arguments]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/health")
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _wait(url: str) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"no answer from {url}")


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[None]:
    """Connections that have asked for something once and then say nothing."""
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            one.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            if not one.recv(4096).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("an idle connection was refused")
        yield


def measure_added(options: argparse.Namespace) -> list[Measurement]:
    """Calls directly and through gateways, of one text and of many."""
    found = []
    with ExitStack() as stack:
        address = options.server
        if address is None:
            address = stack.enter_context(running_server(ServeOptions(door=Door.UNARY))).grpc
        ports = {
            "gateway": stack.enter_context(gateway(address)),
            "gateway, tokenises": stack.enter_context(gateway(address, "--tokenizer", CHECKPOINT)),
        }
        for rows in options.rows:
            texts = [f"{TEXT} {row}" for row in range(rows)]
            calls = {"gRPC": direct(address, texts)}
            calls |= {name: through(port, texts, "float") for name, port in ports.items()}
            calls["gateway, base64"] = through(ports["gateway"], texts, "base64")
            found += _noted(in_turns(calls, options.repeats), f"rows {rows}")
        if options.idle:
            texts = [TEXT]
            with idle_connections(ports["gateway"], options.idle):
                calls = {"gRPC": direct(address, texts), "gateway": through(ports["gateway"], texts, "float")}
                found += _noted(in_turns(calls, options.repeats), f"rows 1, {options.idle} idle connections")
    return found


def measure_encoding(options: argparse.Namespace) -> list[Measurement]:
    """What writing 100 vectors of 1024 numbers takes."""
    vectors = np.random.default_rng(0).standard_normal((100, 1024), np.float32)
    writers: dict[str, Callable[[], Any]] = {
        "json": lambda: json.dumps(vectors.tolist()),
        "orjson of lists": lambda: orjson.dumps(vectors.tolist()),
        "orjson of numpy": lambda: orjson.dumps(vectors, option=orjson.OPT_SERIALIZE_NUMPY),
        "base64": lambda: [base64.b64encode(row.tobytes()) for row in vectors],
        "pybase64 of numpy": lambda: [pybase64.b64encode(row.data.cast("B")) for row in vectors],
    }

    def timed(write: Callable[[], Any]) -> Call:
        def call() -> float:
            start = time.perf_counter()
            write()
            return time.perf_counter() - start

        return call

    return _noted(in_turns({name: timed(write) for name, write in writers.items()}, options.repeats), "100 x 1024")


def _noted(samples: dict[str, list[float]], note: str) -> list[Measurement]:
    base = statistics.median(next(iter(samples.values())))
    found = []
    for name, values in samples.items():
        line = Measurement(
            system=f"lazuli {lazuli.__version__}",
            level="server",
            suite="gateway",
            model=CHECKPOINT,
            dtype="float32",
            samples_ms=values,
            concurrency=1,
            protocol=name,
            texts=None,
            note=note,
        )
        p50 = statistics.median(values)
        print(f"{note:32} {name:22} p50 {p50:8.3f} ms  added {p50 - base:+.3f}")
        found.append(line)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", help="folder under perf/results; nothing is written without it")
    parser.add_argument("--server", help="host:port of a server's gRPC; by default one is started")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--encode", action="store_true")
    options = parser.parse_args(arguments)
    found = measure_encoding(options) if options.encode else measure_added(options)
    if options.machine:
        print(write(options.machine, "gateway_encoding" if options.encode else "gateway", found))


if __name__ == "__main__":
    main()
