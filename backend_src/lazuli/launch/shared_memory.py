"""The shared memory regions that the Python backend leaves in /dev/shm.

Takes prefixes of names; removes regions and measures the room. Does not know which models use them.
"""

import contextlib
import itertools
import os
import re
from pathlib import Path

FOLDER = Path("/dev/shm")
_NAME = re.compile(r"lazuli_(?P<namespace>\d+)_(?P<pid>\d+)_\d+_")
_serial = itertools.count()


def new_prefix() -> str:
    """A prefix for the regions of one server, unique on this machine.

    It names the launcher's process, so that a later launcher can tell the regions of a dead one, and the
    process namespace, as containers may share one /dev/shm.
    """
    return f"lazuli_{_pid_namespace()}_{os.getpid()}_{next(_serial)}_"


def keep_private(prefix: str, folder: Path = FOLDER) -> None:
    """Take the regions of a server from other accounts: Triton lets everybody read them, whatever the umask is."""
    for path in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # gone, with its model
            path.chmod(0o600)


def remove_regions(prefix: str, folder: Path = FOLDER) -> list[str]:
    """Remove the regions of a server that has ended.

    Returns:
        The names that were there.
    """
    assert prefix.startswith("lazuli_"), prefix
    return [path.name for path in sorted(folder.glob(f"{prefix}*")) if _remove(path)]


def remove_stale_regions(folder: Path = FOLDER) -> list[str]:
    """Remove the regions whose launcher no longer exists, as after a kill or a crash.

    Returns:
        The names removed.
    """
    removed = []
    for path in sorted(folder.glob("lazuli_*")):
        match = _NAME.match(path.name)
        if match is None or int(match["namespace"]) != _pid_namespace():
            continue
        if not Path(f"/proc/{match['pid']}").exists() and _remove(path):
            removed.append(path.name)
    return removed


def free_bytes(folder: Path = FOLDER) -> int | None:
    """Room for regions, or None if there is no shared memory."""
    try:
        stat = os.statvfs(folder)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        path.unlink()
        return True
    return False


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
