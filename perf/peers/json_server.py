"""Servers that speak JSON over HTTP: found by URL, or started with a command and waited for.

Takes a URL and what makes a connection; yields the process id of one that was started. Knows no API.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from clients.keep_alive import CHEAP_TIMEOUT_S, TIMEOUT_S, KeepAlive
from peers.spec import Settings, TargetSpec

_START_TIMEOUT_S = 900.0
_STOP_TIMEOUT_S = 30.0


@contextlib.contextmanager
def reachable(spec: TargetSpec, settings: Settings, ask: Callable[[KeepAlive], object]) -> Iterator[int | None]:
    """Yield once the server answers.

    Args:
        spec: Has the address and perhaps a `command`.
        settings: Say where the log of a started one goes.
        ask: Raises as long as the server is not ready.

    Yields:
        The process id of a started server.

    Raises:
        ValueError: If there is no address.
        RuntimeError: If a started server ends, or does not answer in time; if another does not answer as its kind does.
        OSError: If another is not reached, or does not answer in time.
    """
    if spec.address is None:
        raise ValueError(f"{spec.kind} needs the URL of a server: --target {spec.kind}=http://host:port")
    if "command" not in spec.options:
        _ask_once(spec, spec.address, ask)
        yield None
        return
    with _started(spec.options["command"], settings.log) as process:
        wait_for(process, spec.address, ask, _START_TIMEOUT_S)
        yield process.pid


def wait_for(
    process: subprocess.Popen[bytes], address: str, ask: Callable[[KeepAlive], object], timeout_s: float
) -> None:
    """Wait until a server that was started answers.

    Raises:
        RuntimeError: If it ends, or does not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    while not _answers(address, ask):
        if process.poll() is not None:
            raise RuntimeError(f"the server for {address} ended with {process.returncode}: {process.args!r}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing answered at {address} within {timeout_s:.0f} s: {process.args!r}")
        time.sleep(0.05)


def end_when_told() -> None:
    """Let SIGTERM end this process as an error would, so that the servers which it started end, too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def end(process: subprocess.Popen[bytes]) -> None:
    """End it with all of its children, which are a group of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_S)


@contextlib.contextmanager
def _started(command: str, log: Path | None) -> Iterator[subprocess.Popen[bytes]]:
    with open(log or os.devnull, "ab") as output:
        process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        end(process)


def _ask_once(spec: TargetSpec, address: str, ask: Callable[[KeepAlive], object]) -> None:
    """Ask a server that ought to be ready, so that an answer in another form is as little use as none."""
    try:
        _ask(address, ask, CHEAP_TIMEOUT_S)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RuntimeError(f"nothing answers as {spec.kind} does: {type(error).__name__}: {error}") from error


def _answers(address: str, ask: Callable[[KeepAlive], object]) -> bool:
    try:
        _ask(address, ask)
    except (OSError, RuntimeError):
        return False
    return True


def _ask(address: str, ask: Callable[[KeepAlive], object], timeout_s: float = TIMEOUT_S) -> None:
    with contextlib.closing(KeepAlive(address, timeout_s)) as connection:
        ask(connection)
