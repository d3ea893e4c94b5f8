"""Processes that die or stop under load: `lazuli serve` finds out, says so and starts again; no request is lost."""

import contextlib
import http.client
import os
import re
import signal
import threading

import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from .serving import port_flags, run
from .supervised import PATIENCE_S, Supervised, load, wait_for
from .wire import HttpError, grpc_infer, http_generate


@pytest.fixture(scope="module")
def serve():
    started = Supervised("--door=unary")
    try:
        started.banner()
        yield started
    finally:
        started.end()


def ask_until_it_fails(door, server, errors):
    """A client that knows nothing of retries and has no timeout worth the name."""
    try:
        while True:
            door(server, ["a text"] * 50)
    except (InferenceServerException, HttpError, OSError) as error:
        errors.append(error)


FAULTS = {
    "engine-killed": ("embedding", signal.SIGKILL, "the process of embedding died"),
    "engine-stopped": ("embedding", signal.SIGSTOP, "^embed(ding)? over HTTP: "),
    "tokenizer-killed": ("tokenizer", signal.SIGKILL, "the process of tokenizer died"),
    "server-killed": (None, signal.SIGKILL, "the server was ended by SIGKILL"),
    "server-stopped": (None, signal.SIGSTOP, "^the server answers nothing within 2 s$"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_process_fails_under_load(serve, reference, fault):
    model, number, reason = FAULTS[fault]
    errors = []
    plain = [
        threading.Thread(target=ask_until_it_fails, args=[door, serve, errors]) for door in (grpc_infer, http_generate)
    ]
    restarts = len(serve.events("restart"))
    with load(serve, reference):
        for thread in plain:
            thread.start()
        victim = serve.server() if model is None else serve.stub(model)
        os.kill(victim.pid, number)
        said = serve.wait_until(False)
        if fault == "server-stopped":
            silent = dict.fromkeys(("embed", "tokenizer", "embedding"), "the server answers nothing within 2 s")
            # On a slow machine two seconds of it can go by between two looks.
            wait_for(
                lambda: serve.ready()[1]["faults"] == silent or len(serve.events("restart")) > restarts,
                "complaints about the server, before its restart",
            )
        if fault == "engine-stopped":
            assert run("health", "--timeout=1", *port_flags(serve.ports)).returncode == 1
        serve.wait_until(True)
    for thread in plain:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a request hangs"
    assert len(errors) == len(plain)
    assert said["ready"] is False
    assert re.search(reason, serve.events("restart")[restarts]["reason"])
    assert len(serve.events("restart")) == len(serve.events("serving again")) == restarts + 1
    if fault == "server-stopped":
        down_s = serve.events("serving again")[-1]["down_s"]
        assert down_s > serve.events("serving again")[-1]["start_s"] + 2 * 2, "two probes without an answer count, too"
    print(f"{fault}: {serve.events('serving again')[-1]}")


def test_health_asks_every_model(serve):
    done = run("health", *port_flags(serve.ports))
    assert (done.returncode, done.stdout.splitlines()[0].split()[:2]) == (0, ["ok", "embed"])
    done = run("health", *port_flags(serve.ports), "--model", "tokenizer", "--model", "nothing")
    assert done.returncode == 1
    assert "nothing" in done.stdout


def test_idle_connections_delay_its_end_by_the_exit_timeout_and_no_more(serve):
    """The last test here."""
    with contextlib.ExitStack() as open_ones:
        for _ in range(3):
            idle = http.client.HTTPConnection(serve.http, timeout=10)
            open_ones.callback(idle.close)
            idle.request("GET", "/v2/health/live")
            assert idle.getresponse().read() == b""
            channel = open_ones.enter_context(triton_grpc.InferenceServerClient(serve.grpc))
            assert channel.is_server_live()
        assert serve.interrupt() == 0
    assert serve.lines[-1] == "stopped\n"
