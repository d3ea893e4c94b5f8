"""The systems that are reached by URL, against a server that has the routes of all."""

import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import fake_server
import numpy as np
import pytest

from peers.registry import open_peer
from peers.spec import Settings, TargetSpec
from texts.rows import Rows

TEXTS = ["first", "the second text", "third"]
EXPECTED = np.stack([fake_server.vector(text) for text in TEXTS])
SETTINGS = Settings("x")
RUN = Path(__file__).parents[4] / "perf" / "run.py"

ALL = [
    ("vllm", {}, "vllm 0.22.0", "http", "auto", 11),
    ("vllm", {"encoding": "float", "dtype": "bfloat16"}, "vllm 0.22.0", "http", "bfloat16", 11),
    ("infinity", {}, "infinity 0.0.78", "http", "auto", None),
    ("tei", {}, "tei 1.9", "http native", "float16", 11),
    ("tei", {"route": "openai"}, "tei 1.9", "http openai", "float16", 11),
    ("openai", {"model": "mine"}, "OpenAI-style server", "http", "auto", 11),
    ("openai", {"model": "mine", "tokens": "no"}, "OpenAI-style server", "http", "auto", None),
]


def open_kind(kind, server, **options):
    # What is called OpenAI-style has its path in the address.
    prefix = "/v1" if kind == "openai" else ""
    return open_peer(TargetSpec(kind, server.url + prefix, options), SETTINGS)


@pytest.mark.parametrize(("kind", "options", "system", "protocol", "dtype", "tokens"), ALL)
def test_texts_in_vectors_out(server, kind, options, system, protocol, dtype, tokens):
    with open_kind(kind, server, **options) as peer:
        assert (peer.system, peer.protocol, peer.dtype, peer.level) == (system, protocol, dtype, "server")
        with closing(peer.endpoint.connect()) as connection:
            connection.ping()
            answer = connection.send(connection.prepare(Rows(TEXTS, 11)))
    np.testing.assert_array_equal(answer.vectors, EXPECTED)
    assert answer.tokens == tokens


@pytest.mark.parametrize("kind", ["vllm", "tei"])
def test_ids_are_sent_in_place_of_texts(server, kind):
    ids = [np.array([101, 7, 102], np.int32), np.array([101, 102], np.int32)]
    with open_kind(kind, server) as peer, closing(peer.endpoint.connect()) as connection:
        assert peer.takes_ids
        assert connection.send(connection.prepare(Rows(["a", ""], 5, ids))).tokens == 5
    sent = server.bodies[-1]
    assert sent.get("input", sent.get("inputs")) == [[101, 7, 102], [101, 102]]


def test_texts_are_never_cut_by_tei(server):
    with open_kind("tei", server) as peer, closing(peer.endpoint.connect()) as connection:
        connection.send(connection.prepare(Rows(["a"], 3)))
    assert server.bodies[-1]["truncate"] is False


def test_a_server_that_is_not_there_is_an_error():
    with pytest.raises(ConnectionRefusedError), open_peer(TargetSpec("vllm", "http://127.0.0.1:9"), SETTINGS):
        pass


def test_an_address_is_needed():
    with pytest.raises(ValueError, match="vllm needs the URL of a server"), open_peer(TargetSpec("vllm"), SETTINGS):
        pass


def test_an_answer_other_than_200_says_why(server):
    with open_kind("vllm", server) as peer, closing(peer.endpoint.connect()) as connection:
        connection._endpoint = connection._endpoint.__class__("", "", "/nowhere")
        connection._connection._prefix = "/v0"
        with pytest.raises(RuntimeError, match=r"HTTP 404 for /v0/health: null"):
            connection._connection.get("/health")


def test_a_server_is_started_waited_for_and_ended(tmp_path):
    with fake_server.fake_server() as free:
        port = free.server_port
    command = f"{sys.executable} {fake_server.__file__} {port}"
    settings = Settings("x", log=tmp_path / "log")
    spec = TargetSpec("vllm", f"http://127.0.0.1:{port}", {"command": command})
    with open_peer(spec, settings) as peer:
        assert peer.pid is not None
        with closing(peer.endpoint.connect()) as connection:
            connection.ping()
    with pytest.raises(ConnectionRefusedError), closing(peer.endpoint.connect()) as connection:
        connection.ping()


def test_a_server_that_ends_at_once_is_an_error(tmp_path):
    command = f"{sys.executable} -c 'raise SystemExit(3)'"
    spec = TargetSpec("vllm", "http://127.0.0.1:9", {"command": command})
    with (
        pytest.raises(RuntimeError, match=r"for http://127\.0\.0\.1:9 ended with 3"),
        open_peer(spec, SETTINGS),
    ):
        pass


def test_a_run_that_is_told_to_end_leaves_no_server(tmp_path):
    with fake_server.fake_server() as free:
        port = free.server_port
    target = f"vllm=http://127.0.0.1:{port},command={sys.executable} {fake_server.__file__} {port}"
    command = [sys.executable, str(RUN), "memory", "--target", target, "--machine", "test", "--results", str(tmp_path)]
    run = subprocess.Popen([*command, "--seconds", "600"], stdout=subprocess.PIPE, text=True)
    try:
        next(line for line in run.stdout if line.startswith("suite=memory"))  # the load is on
        run.terminate()
        assert run.wait(60) == 128 + signal.SIGTERM
    finally:
        run.kill()
        run.communicate()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass
