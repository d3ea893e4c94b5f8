import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from lazuli.launch import serve, stop_request
from lazuli.launch.command import build_launch
from lazuli.launch.errors import LaunchError
from lazuli.launch.serve import Supervisor
from lazuli.launch.stop_request import StopRequest


class Shown:
    """Collects what the user sees, and asks to stop at a given text."""

    def __init__(self, stop: StopRequest, stop_at: str = "\0") -> None:
        self.lines: list[str] = []
        self._stop = stop
        self._stop_at = stop_at

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if self._stop_at in line:
            self._stop.note()


def run(options, behaviour: str, stop_at: str = "\0", **changes):
    options = replace(options, environment={"FAKE": behaviour}, **changes)
    stop = StopRequest()
    shown = Shown(stop, stop_at)
    return Supervisor(options, build_launch(options), stop, shown), shown


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(serve, "_RESTART_PAUSE_S", 0.0)
    monkeypatch.setattr(serve, "_WATCH_S", 0.02)


def test_serves_until_stopped(options, shm):
    supervisor, shown = run(options, "", stop_at="ready in")
    assert supervisor.run() == 0
    assert shown.lines[-1] == "stopped"
    assert f"http://127.0.0.1:{options.http_port}" in "\n".join(shown.lines)
    assert list(shm.iterdir()) == []


def test_the_admin_key_is_not_shown(options):
    supervisor, shown = run(options, "", stop_at="ready in")
    supervisor.run()
    assert options.admin_key not in "\n".join(shown.lines)


def test_a_failed_load_is_told_in_its_own_words(options, shm):
    supervisor, _ = run(options, "die")
    with pytest.raises(LaunchError, match="model echo: ValueError: no such checkpoint") as caught:
        supervisor.run()
    assert "server-" in caught.value.remedy
    assert list(shm.iterdir()) == []


def test_a_server_that_never_answers_is_given_up(options):
    supervisor, _ = run(options, "hang", start_timeout_s=1.0)
    with pytest.raises(LaunchError, match="a first inference failed: echo over HTTP"):
        supervisor.run()


def test_a_crashing_server_is_restarted_up_to_the_limit(options):
    # It answers the first probe and dies.
    supervisor, shown = run(options, "crash", max_restarts=2)
    with pytest.raises(LaunchError, match="gave up after 2 restarts"):
        supervisor.run()
    restarts = [line for line in shown.lines if line.startswith("restarting")]
    assert len(restarts) == 2
    assert "exit code 3" in restarts[0]


def test_a_stop_while_starting(options, monkeypatch):
    supervisor, shown = run(options, "", stop_at="stopping")
    monkeypatch.setattr("lazuli.launch.server.Prober.is_ready", lambda self: supervisor._stop.note() or False)
    assert supervisor.run() == 0
    assert shown.lines[-1] == "stopped"


@pytest.fixture
def ctrl_c_works():
    """A shell that runs the tests in the background has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_works")
def test_signals_are_counted_and_handlers_restored(monkeypatch):
    monkeypatch.setattr(stop_request, "_SAME_S", 0.0)
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest().from_signals() as stop:
        assert not stop.asked()
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.asked()
        assert not stop.asked_twice()
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked_twice()
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_same_signal_twice_is_one_wish():
    stop = StopRequest()
    stop.note()
    stop.note()
    assert stop.asked()
    assert not stop.asked_twice()


def test_waiting_ends_with_the_request():
    stop = StopRequest()
    timer = threading.Timer(0.05, stop.note)
    timer.start()
    assert stop.wait(60.0)
    timer.join()
