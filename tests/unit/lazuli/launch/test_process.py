import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lazuli.launch import process
from lazuli.launch.process import ServerProcess
from lazuli.launch.shared_memory import new_prefix, remove_regions, remove_stale_regions


def wait_for(condition, what, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


@pytest.fixture
def start(launch, tmp_path, shm):
    """Starts the fake server with a behaviour, and makes sure that it is up."""
    started = []

    def start(behaviour: str) -> ServerProcess:
        environment = {**launch.environment, "FAKE": behaviour, "PYTHONUNBUFFERED": "1"}
        one = ServerProcess(replace(launch, environment=environment), tmp_path / "log")
        started.append(one)
        wait_for(lambda: list(shm.iterdir()), "the server to start")
        return one

    yield start
    for one in started:
        one.kill()


def test_a_polite_server_ends_by_itself_and_leaves_nothing(start, shm):
    server = start("")
    assert server.stop(exit_timeout_s=5)
    assert server.exit_code() == 0
    assert list(shm.iterdir()) == []


def test_its_own_processor_time_is_told_apart_from_that_of_its_group(start):
    server = start("")
    assert 0 < server.own_cpu_s() <= server.cpu_s()
    server.kill()
    assert server.own_cpu_s() == 0.0


def test_a_server_that_crashes_as_it_stops_has_not_ended_in_good_order(start):
    server = start("crash_at_stop")
    assert not server.stop(exit_timeout_s=5)
    assert server.exit_code() == -11


def test_a_deaf_server_is_killed_after_the_timeout(start, shm, monkeypatch):
    monkeypatch.setattr(process, "_STOP_MARGIN_S", 0.2)
    server = start("deaf")
    assert not server.stop(exit_timeout_s=0.2)
    assert server.exit_code() == -9
    assert list(shm.iterdir()) == []


def test_a_faulty_server_is_not_waited_for_beyond_the_timeout(start):
    server = start("deaf")
    started = time.monotonic()
    assert not server.stop(exit_timeout_s=0.2, is_faulty=True)
    assert time.monotonic() - started < process._STOP_MARGIN_S
    assert server.exit_code() == -9


def test_a_server_that_answers_nothing_is_not_waited_for(start):
    server = start("deaf")
    assert not server.stop(exit_timeout_s=1000, is_faulty=True, is_silent=True)
    assert server.exit_code() == -9


def test_a_server_that_is_stopped_is_not_waited_for(start):
    """Whoever asks for its end: it would not hear it."""
    server = start("")
    os.kill(server.pid, signal.SIGSTOP)
    wait_for(lambda: [member.state for member in server.members()] == ["T"], "the signal to arrive")
    assert not server.stop(exit_timeout_s=1000)
    assert server.exit_code() == -9


def test_hurry_kills_at_once(start):
    server = start("deaf")
    assert not server.stop(exit_timeout_s=1000, hurry=lambda: True)
    assert server.exit_code() == -9


def test_processes_of_the_server_go_with_it(start, tmp_path):
    server = start("child")
    wait_for(lambda: "child" in (tmp_path / "log").read_text(), "the child")
    child = int((tmp_path / "log").read_text().split()[1])
    assert child in [member.pid for member in server.members()]
    server.stop(exit_timeout_s=5)
    assert [member for member in server.members() if member.state != "Z"] == []
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text()


def test_a_stub_is_told_by_its_name_and_its_model_by_its_command_line(tmp_path, monkeypatch):
    def write(pid, name, *words):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} ({name}) S 1 42 0 0 0 0 0 0 0 0 {pid} 3 0 0")
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))

    write(100, "triton_python_b", "/x/triton_python_backend_stub", "/models/a.embedding/1/model.py", "region")
    write(10, "tritonserver", "/x/tritonserver", "--model-repository=/models")
    write(7, "triton_python_b")  # it has ended
    monkeypatch.setattr(process, "_PROC", tmp_path)
    found = {member.pid: member for member in process.group_members(42)}
    assert {pid: member.model for pid, member in found.items()} == {100: "a.embedding", 10: None, 7: None}
    assert {pid: member.is_stub for pid, member in found.items()} == {100: True, 10: False, 7: True}
    assert found[100].cpu_ticks == 103


def test_processor_time_of_some_models(start, monkeypatch):
    server = start("")
    ticks = os.sysconf("SC_CLK_TCK")
    members = [process.Member(number, "", "S", number * ticks, model) for number, model in enumerate("abc", 1)]
    monkeypatch.setattr(process, "group_members", lambda group: members)
    assert server.cpu_s() == 6
    assert server.cpu_s(["a", "c"]) == 4


def test_stale_regions_are_told_from_live_ones(tmp_path):
    live = tmp_path / f"{new_prefix()}region"
    namespace = os.stat("/proc/self/ns/pid").st_ino
    dead = tmp_path / f"lazuli_{namespace}_{2**22 + 1}_0_region"
    elsewhere = tmp_path / f"lazuli_1_{2**22 + 1}_0_region"
    foreign = tmp_path / "triton_python_backend_shm_region_1"
    for path in (live, dead, elsewhere, foreign):
        path.touch()
    assert remove_stale_regions(tmp_path) == [dead.name]
    assert sorted(tmp_path.iterdir()) == sorted([live, elsewhere, foreign])


def test_regions_of_one_server_only(tmp_path):
    ours, other = new_prefix(), new_prefix()
    for prefix in (ours, other):
        (tmp_path / f"{prefix}a").touch()
    assert remove_regions(ours, tmp_path) == [f"{ours}a"]
    assert [path.name for path in tmp_path.iterdir()] == [f"{other}a"]
