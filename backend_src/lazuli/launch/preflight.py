"""What is checked before the server starts, so that it fails early and in plain words.

Takes options; raises `LaunchError`. Does not know how the server reports the same faults.
"""

import contextlib
import errno
import os
import socket
from pathlib import Path

from lazuli.launch.addresses import numeric_address
from lazuli.launch.errors import LaunchError
from lazuli.launch.options import ServeOptions
from lazuli.launch.repository import count_processes, find_repositories
from lazuli.launch.server_binary import ServerBinary
from lazuli.launch.shared_memory import FOLDER, free_bytes

# A process of the Python backend has one region, as `command.py` sets its size; the built-in model has three processes,
# and Docker's default is just 64 MB.
_REGION_BYTES = 16 * 1024 * 1024
_BUILT_IN_PROCESSES = 3
MIN_SHARED_MEMORY_BYTES = _BUILT_IN_PROCESSES * _REGION_BYTES


def check_machine(options: ServeOptions) -> None:
    """Check what the server will need of the machine.

    Raises:
        LaunchError: Ports are in use, shared memory, a model repository or the checkpoint is missing.
    """
    check_ports(options)
    repositories = find_repositories(options.model_repositories)
    check_shared_memory(FOLDER, count_processes(repositories, options.door, options.models))
    checkpoint = (
        options.checkpoint or options.environment.get("LAZULI_CHECKPOINT") or os.environ.get("LAZULI_CHECKPOINT")
    )
    check_checkpoint(checkpoint)


def check_ports(options: ServeOptions) -> None:
    """Name every port that cannot be bound."""
    numeric_address(options.host)
    faults = {flag: port_fault(options.host, port) for flag, port in options.ports.items()}
    bad = [f"{flag} {options.ports[flag]}: {fault}" for flag, fault in faults.items() if fault]
    if bad:
        raise LaunchError("cannot listen on " + "; ".join(bad), f"choose other ports with {', '.join(options.ports)}")


def port_fault(host: str, port: int) -> str | None:
    """Why a port cannot be bound, or None if it is free."""
    with socket.socket() as probe:
        # As the server does: connections that linger after a stop do not make a port used.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return "already in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
    return None


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody uses at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]


def check_shared_memory(folder: Path, processes: int = _BUILT_IN_PROCESSES) -> None:
    """Refuse to start without room for the regions of the Python backend, one a process."""
    free = free_bytes(folder)
    needed = max(processes, _BUILT_IN_PROCESSES) * _REGION_BYTES
    if free is None:
        raise LaunchError(f"there is no {folder}", "mount a tmpfs there; in Docker use --shm-size=1g")
    if free < needed:
        raise LaunchError(
            f"{folder} has {free >> 20} MiB free, but {needed >> 20} MiB are needed",
            f"free some (ls {folder}) or enlarge it; in Docker use --shm-size=1g",
        )


def check_numpy(server: ServerBinary, version: str) -> None:
    """Refuse NumPy 2 with the wheel's server, whose stub dies of it at the first text."""
    if server.is_wheel and not version.startswith("1."):
        raise LaunchError(f"numpy {version} crashes the stub of {server.version}", "pip install numpy==1.26.4")


def check_checkpoint(checkpoint: str | None) -> None:
    """Check a checkpoint that is plainly a path; a name such as `org/model` is left to the engine."""
    if checkpoint and checkpoint.startswith(("/", ".", "~")) and not Path(checkpoint).expanduser().exists():
        raise LaunchError(f"checkpoint {checkpoint} does not exist", "pass --checkpoint with a folder that does")
