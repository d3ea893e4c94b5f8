"""The processes: how they stop, with a request under way that never ends."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from lazuli.launch.preflight import free_ports
from lazuli_client.gateway.server import Workers

HEAD = b"POST /v1/embeddings HTTP/1.1\r\nHost: gateway\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture(params=[1, 2], ids=["one process", "two processes"])
def process(request, tmp_path):
    """(process, port, log) of a gateway without servers."""
    (port,) = free_ports(1)
    command = [
        sys.executable,
        "-c",
        "from lazuli.cli import main; main()",
        "gateway",
        "--port",
        str(port),
        "--workers",
        str(request.param),
    ]
    command += ["--replica", "127.0.0.1:9", "--probe-timeout", "0.1", "--drain", "3"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield process, port, tmp_path / "log"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_answered(port):
    with contextlib.suppress(OSError), connect(port) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        return bool(connection.recv(1))
    return False


def is_refused(port):
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False


def test_while_it_stops_nobody_is_let_in_and_who_waits_is_told(process):
    process, port, log = process
    wait_for(lambda: is_answered(port))
    with connect(port) as waiting:
        waiting.sendall(HEAD + b"{")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: is_refused(port))
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):  # not answered yet: it was still draining
            waiting.recv(1)
        waiting.settimeout(30)
        answer = b"".join(iter(lambda: waiting.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in head.lower()
    assert json.loads(body)["error"]["code"] == "stopping"
    assert process.wait(timeout=30) == 0
    assert "Traceback" not in log.read_text()


def test_the_parent_closes_its_socket_before_the_workers_are_told():
    listener, seen = socket.socket(), []

    class Worker:
        def terminate(self):
            seen.append(listener.fileno())

    workers = object.__new__(Workers)  # its own start would change this process's signals
    workers.sockets, workers.processes = [listener], [Worker()]
    workers.terminate_all()
    assert seen == [-1]
