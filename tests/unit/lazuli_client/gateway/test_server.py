"""The processes: how they stop, with a request under way that never ends."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from lazuli.launch.preflight import free_ports
from lazuli_client.gateway import server
from lazuli_client.gateway.server import Workers
from lazuli_client.gateway.settings import GatewaySettings

HEAD = b"POST /v1/embeddings HTTP/1.1\r\nHost: gateway\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture(params=[1, 2], ids=["one process", "two processes"])
def process(request, tmp_path):
    """(process, port, log) of a gateway without servers."""
    (port,) = free_ports(1)
    with running(port, request.param, tmp_path / "log") as process:
        yield process, port, tmp_path / "log"


@contextlib.contextmanager
def running(port, workers, log_path):
    """The process."""
    command = [sys.executable, "-c", "from lazuli.cli import main; main()", "gateway", "--port", str(port)]
    command += ["--workers", str(workers), "--replica", "127.0.0.1:9", "--probe-timeout", "0.1", "--drain", "3"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield process
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


def test_of_two_at_one_port_one_says_that_it_cannot_listen(tmp_path):
    (port,) = free_ports(1)
    logs = [tmp_path / "first", tmp_path / "second"]
    with running(port, 2, logs[0]) as first, running(port, 2, logs[1]) as second:
        wait_for(lambda: [first.poll(), second.poll()] != [None, None])
        ended = 0 if second.poll() is None else 1
        assert [first, second][ended].returncode == 1
        assert "address already in use" in logs[ended].read_text().lower()
        wait_for(lambda: is_answered(port))
        assert [first, second][1 - ended].poll() is None


def test_the_parent_listens_itself(caplog):
    """Two sockets may be bound to one port until one listens."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        config = SimpleNamespace(host="127.0.0.1", port=bound.getsockname()[1], backlog=1)
        with server._listening(config):
            connect(config.port).close()
            with pytest.raises(SystemExit) as caught:
                server._listening(config)
    assert caught.value.code == 1
    assert f"cannot listen on 127.0.0.1:{config.port}, as --host and --port say: Address already" in caplog.text


@pytest.mark.parametrize("workers", [1, 2])
def test_a_used_port_is_told_in_one_line_before_anything_starts(tmp_path, workers):
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with running(port, workers, tmp_path / "log") as process:
            assert process.wait(timeout=60) == 1
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert f"cannot listen on 127.0.0.1:{port}, as --host and --port say: Address already in use" in line


@pytest.mark.parametrize(
    ("host", "reason"),
    [("192.0.2.1", "Cannot assign requested address"), ("no-such-host.invalid", ""), ("a" * 300, "")],
)
@pytest.mark.parametrize("check", [server._check_address, server._listening])
def test_where_nobody_can_listen_is_told(caplog, host, reason, check):
    with pytest.raises(SystemExit) as caught:
        check(SimpleNamespace(host=host, port=1234, backlog=1))
    assert caught.value.code == 1
    assert "Unknown error" not in caplog.text
    assert "while" not in caplog.text
    assert f"cannot listen on {host}:1234, as --host and --port say: {reason}" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_a_free_port_stays_free(host):
    (port,) = free_ports(1)
    config = SimpleNamespace(host=host, port=port)
    server._check_address(config)
    server._check_address(config)
    assert is_refused(port)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with a certificate and its key, the key encrypted, another key, and a file of nonsense."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder, timeout=60)

    openssl(
        *[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=a",
            "-keyout",
            "key.pem",
            "-out",
            "chain.pem",
        ]
    )
    openssl(*["rsa", "-aes128", "-passout", "pass:secret", "-in", "key.pem", "-out", "encrypted.pem"])
    openssl(*["genrsa", "-out", "other.pem", "2048"])
    (folder / "nonsense.pem").write_text("nonsense")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    (folder / "broken.pem").write_text(f"{begin}\nnonsense\n{end}\n")
    return folder


@pytest.mark.parametrize(
    ("chain", "key", "words"),
    [
        ("none.pem", "key.pem", r"tls_cert: \S+none.pem cannot be read: No such file"),
        ("chain.pem", "none.pem", r"tls_key: \S+none.pem cannot be read: No such file"),
        ("nonsense.pem", "key.pem", r"tls_cert: \S+nonsense.pem is no PEM file"),
        ("chain.pem", "chain.pem", r"tls_key: \S+chain.pem is no PEM file"),
        ("broken.pem", "key.pem", r"\S+broken.pem and \S+key.pem cannot be used: "),
        ("chain.pem", "other.pem", r"other.pem cannot be used: the key is not that of the certificate"),
        ("chain.pem", "encrypted.pem", r"tls_key: \S+encrypted.pem is encrypted"),
    ],
)
def test_what_is_wrong_with_a_certificate_names_the_file(certificates, chain, key, words):
    settings = GatewaySettings(tls_cert=str(certificates / chain), tls_key=str(certificates / key))
    with pytest.raises(ValueError, match=words):
        server.serve(settings)


def test_a_certificate_and_its_key_are_fine(certificates):
    server._check_certificate(str(certificates / "chain.pem"), str(certificates / "key.pem"))
