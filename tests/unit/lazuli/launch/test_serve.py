import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from lazuli.launch import restarts, server, stop_request, supervisor
from lazuli.launch.command import build_launch
from lazuli.launch.errors import LaunchError
from lazuli.launch.server import Server
from lazuli.launch.stop_request import StopRequest
from lazuli.launch.supervisor import Supervisor


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


def make(options, behaviour: str, stop_at: str = "\0", **changes):
    options = replace(options, environment={"FAKE": behaviour}, **changes)
    stop = StopRequest()
    shown = Shown(stop, stop_at)
    return Supervisor(options, build_launch(options), stop, shown), shown


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(restarts, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "_WATCH_S", 0.02)


def test_serves_until_stopped(options, shm):
    supervised, shown = make(options, "", stop_at="ready in")
    assert supervised.run() == 0
    assert shown.lines[-1] == "stopped"
    assert f"http://127.0.0.1:{options.http_port}" in "\n".join(shown.lines)
    assert list(shm.iterdir()) == []


def test_the_admin_key_is_not_shown(options):
    supervised, shown = make(options, "", stop_at="ready in")
    supervised.run()
    assert options.admin_key not in "\n".join(shown.lines)


def test_a_failed_load_is_told_in_its_own_words(options, shm):
    supervised, _ = make(options, "die")
    with pytest.raises(LaunchError, match="model echo: ValueError: no such checkpoint") as caught:
        supervised.run()
    assert "server-" in caught.value.remedy
    assert list(shm.iterdir()) == []


def test_a_server_that_never_answers_is_given_up(options, monkeypatch):
    monkeypatch.setattr(Server, "_check_time", lambda self, deadline: None)  # on a busy machine the fake itself is late
    supervised, _ = make(options, "hang", start_timeout_s=1.0)
    with pytest.raises(LaunchError, match="a first inference failed: echo over HTTP"):
        supervised.run()


def test_a_crashing_server_is_restarted_up_to_the_limit(options):
    # It answers the first probe and dies.
    supervised, shown = make(options, "crash", max_restarts=2)
    with pytest.raises(LaunchError, match="gave up after 2 restarts"):
        supervised.run()
    events = [json.loads(line) for line in shown.lines if line.startswith("{")]
    assert [event["event"] for event in events] == ["restart", "serving again"] * 2
    assert [event["number"] for event in events[::2]] == [1, 2]
    assert "exit code 3" in events[0]["reason"]
    assert events[0]["limit"] == 2
    assert events[1]["down_s"] >= events[1]["start_s"] > 0


def test_a_crash_while_it_loads_is_no_reason_to_give_up_at_once(options, tmp_path, monkeypatch):
    aborts = tmp_path / "aborts"
    monkeypatch.setenv("FAKE_ABORTS", str(aborts))
    aborts.write_text("first\nsecond")
    supervised, shown = make(options, "abort", stop_at="ready in")
    assert supervised.run() == 0
    events = [json.loads(line) for line in shown.lines if line.startswith("{")]
    assert [(event["event"], event["reason"]) for event in events] == [
        ("restart", "the server was ended by SIGABRT")
    ] * 2
    aborts.write_text("first\nsecond\nthird")
    supervised, shown = make(options, "abort")
    with pytest.raises(LaunchError, match="the server was ended by SIGABRT"):
        supervised.run()
    assert sum("restart" in line for line in shown.lines) == 2


def test_a_start_that_stands_still_is_tried_again(options, monkeypatch):
    monkeypatch.setattr(server, "_IDLE_START_S", 1.5)
    supervised, shown = make(options, "stuck")
    with pytest.raises(LaunchError, match=r"the server has done nothing for 1\.5 s of its start"):
        supervised.run()
    events = [json.loads(line) for line in shown.lines if line.startswith("{")]
    assert [event["reason"] for event in events] == ["the server has done nothing for 1.5 s of its start"] * 2


def test_a_stop_while_it_waits_to_restart(options, monkeypatch):
    monkeypatch.setattr(restarts, "_FIRST_PAUSE_S", 1000.0)
    supervised, shown = make(options, "crash", stop_at='"event": "restart"')
    assert supervised.run() == 0
    assert shown.lines[-1] == "stopped"
    assert sum("ready in" in line for line in shown.lines) == 1


def test_the_state_follows(options, monkeypatch):
    supervised, _ = make(options, "", stop_at="ready in")
    phases = [supervised.state().phase]
    wait = supervised._stop.wait
    monkeypatch.setattr(
        supervised._stop, "wait", lambda seconds: phases.append(supervised.state().phase) or wait(seconds)
    )
    supervised.run()
    phases.append(supervised.state().phase)
    assert list(dict.fromkeys(phases)) == ["starting", "serving", "stopping"]
    assert not supervised.state().is_ready


def test_a_stop_while_starting(options, monkeypatch):
    supervised, shown = make(options, "", stop_at="stopping")
    monkeypatch.setattr("lazuli.launch.server.Prober.is_ready", lambda self: supervised._stop.note() or False)
    assert supervised.run() == 0
    assert shown.lines[-1] == "stopped"


@pytest.fixture
def ctrl_c_works():
    """A shell that runs the tests in the background has them ignore it, and `nohup` the end of the terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGHUP, before[1])


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
