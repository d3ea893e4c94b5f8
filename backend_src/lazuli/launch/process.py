"""The server process: starting it, seeing whether it and its stubs live, and ending them all.

Takes a `Launch` and a log file. Does not know about models, requests or restarts.
"""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from lazuli.launch.command import Launch
from lazuli.launch.shared_memory import keep_private, remove_regions

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
# The second: asked to stop before it had begun.
_GOOD_ENDS = (0, -signal.SIGTERM)
# What the server needs beyond its exit timeout to unload models and to stop its stubs.
_STOP_MARGIN_S = 8.0
_POLL_S = 0.05
_PROC = Path("/proc")
# Triton 24.10 copies a form-encoded HTTP body to the stack twice (a plain `curl -d` sends such), and parses JSON by
# recursion: with the usual 8 MB, a body of 4 MB or 50,000 nested brackets ends the server. This costs address space.
_STACK_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Member:
    """One process of the server's group, as /proc shows it.

    Attributes:
        state: A letter; `Z` has ended and was not collected, `T` was stopped by a signal.
        model: The name of the model that it runs; None if it is no stub, or has ended.
    """

    pid: int
    name: str
    state: str
    cpu_ticks: int
    model: str | None = None

    @property
    def is_stub(self) -> bool:
        """Whether it is a process of the Python backend."""
        return self.name.startswith("triton_python")


class ServerProcess:
    """A running tritonserver in a session of its own, so that a Ctrl-C in the terminal does not reach it."""

    def __init__(self, launch: Launch, log_path: Path) -> None:
        """Start it; its output goes to the log file, never through us.

        Must be called on the main thread: the server is told to end when the thread that started it does.
        """
        self._shm_prefix = launch.shm_prefix
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                launch.arguments,
                env=launch.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_prepare_child,
            )

    @property
    def pid(self) -> int:
        """The process id, which is the id of its group too."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """How it ended, or None while it runs; negative is a signal."""
        return self._process.poll()

    def members(self) -> list[Member]:
        """The server and its stubs, with those that have ended but were not collected."""
        return group_members(self.pid)

    def cpu_s(self, models: Collection[str] = ()) -> float:
        """Processor time that the stubs of these models have used; without any, the whole group."""
        return _cpu_s(member for member in self.members() if not models or member.model in models)

    def used(self) -> tuple[float, int]:
        """Processor time in seconds, and bytes read from disks, of the whole group."""
        members = self.members()
        return _cpu_s(members), sum(_read_bytes(member.pid) for member in members)

    def own_cpu_s(self) -> float:
        """Processor time that the server has used itself, without its stubs; 0 once it is gone."""
        member = _read_member(_PROC / str(self.pid), self.pid)
        return _cpu_s([member] if member else [])

    def keep_private(self) -> None:
        """Let no other account read the texts and vectors in shared memory, in whatever regions there are by now."""
        keep_private(self._shm_prefix)

    def stop(
        self,
        exit_timeout_s: float,
        hurry: Callable[[], bool] = lambda: False,
        *,
        is_faulty: bool = False,
        is_silent: bool = False,
    ) -> bool:
        """Let requests in flight finish, then end everything and remove the shared memory.

        Args:
            exit_timeout_s: What the server was told with `--exit-timeout-secs`.
            hurry: Asked all the time; once true, everything is killed at once.
            is_faulty: Whether to leave out what comes after: with a dead or stuck stub, the server does not get far.
            is_silent: Whether it was found to answer nothing at all: then it finishes nothing either, and is not waited
                for. Neither is one that is stopped, as by SIGSTOP.

        Returns:
            Whether the server ended by itself, and in good order: not by a crash, as it does where requests that are
            left over meet a server that has let go of its models.
        """
        if self.exit_code() is None:
            self._process.send_signal(signal.SIGTERM)
        patience_s = 0.0 if is_silent else exit_timeout_s + (0.0 if is_faulty else _STOP_MARGIN_S)
        ended = self._wait(patience_s, lambda: hurry() or self._is_stopped())
        self.kill()
        return ended and self.exit_code() in _GOOD_ENDS

    def kill(self) -> None:
        """End the server and whatever is left of its group at once, and remove the shared memory."""
        _kill_group(self.pid)
        self._process.wait()
        deadline = time.monotonic() + 5.0
        # Stubs are collected by init; regions are removed when nobody can make new ones.
        while time.monotonic() < deadline and any(member.state != "Z" for member in self.members()):
            _kill_group(self.pid)
            time.sleep(_POLL_S)
        remove_regions(self._shm_prefix)

    def _is_stopped(self) -> bool:
        member = _read_member(_PROC / str(self.pid), self.pid)
        return member is not None and member.state == "T"

    def _wait(self, timeout_s: float, hurry: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.exit_code() is None:
            if hurry() or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def group_members(group: int) -> list[Member]:
    """All processes of a process group."""
    members = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            member = _read_member(folder, group)
            if member is not None:
                members.append(member)
    return members


def _read_member(folder: Path, group: int) -> Member | None:
    try:
        text = (folder / "stat").read_text(errors="replace")
    except OSError:
        return None  # It ended while we looked.
    # The name is in parentheses and may hold anything; after it: state, ppid, pgrp, ..., utime, stime.
    name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
    fields = rest.split()
    if int(fields[2]) != group:
        return None
    return Member(int(folder.name), name, fields[0], int(fields[11]) + int(fields[12]), _read_model(folder))


def _read_model(folder: Path) -> str | None:
    """From the command line of a stub: .../MODEL/VERSION/model.py is its first argument."""
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    path = Path(os.fsdecode(words[1])) if len(words) > 1 else Path()
    return path.parent.parent.name if path.name == "model.py" else None


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _prepare_child() -> None:
    """Runs in the child before it becomes the server."""
    # If the launcher is killed, the server stops in good order.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def _cpu_s(members: Iterable[Member]) -> float:
    return sum(member.cpu_ticks for member in members) / os.sysconf("SC_CLK_TCK")


def _read_bytes(pid: int) -> int:
    """What a process has read from disks; 0 where that is not told."""
    try:
        lines = (_PROC / str(pid) / "io").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))
    except (OSError, StopIteration):
        return 0
