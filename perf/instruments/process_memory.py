"""Memory of a process and all of its descendants, read from /proc and, for a GPU, from nvidia-smi.

Takes a process id; returns MiB. Needs no package. Shared memory is what the processes have mapped of /dev/shm, counted
once however many map it.
"""

import contextlib
import os
import shutil
import subprocess
import threading
from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from pathlib import Path

_INTERVAL_S = 0.2
_SHM = "/dev/shm/"
_MIB = 2**20


@dataclass(frozen=True)
class Memory:
    """MiB.

    Attributes:
        rss_mib: Resident, the sum over processes; pages that several share count for each.
        pss_mib: Resident, pages that several share divided among them.
        shm_mib: Of files in /dev/shm.
        device_mib: Of GPUs; 0 where there is none.
        processes: How many there are.
    """

    rss_mib: float = 0.0
    pss_mib: float = 0.0
    shm_mib: float = 0.0
    device_mib: float = 0.0
    processes: float = 0.0

    def largest(self, other: "Memory") -> "Memory":
        """The larger of each."""
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return Memory(*map(max, pairs))

    def as_extra(self) -> dict[str, float]:
        """For a measurement."""
        return {name: round(value, 1) for name, value in asdict(self).items()}


class MemoryWatch:
    """Reads again and again for the length of a `with` block; `peak` has the largest of each kind."""

    def __init__(self, pid: int) -> None:
        """Watch a process and its descendants."""
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="memory", daemon=True)
        self.peak = Memory()

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self._read()

    def _read_on(self) -> None:
        while not self._done.wait(_INTERVAL_S):
            self._read()

    def _read(self) -> None:
        self.peak = self.peak.largest(read_memory(self._pid))


def read_memory(pid: int) -> Memory:
    """As it is now; processes that end meanwhile are left out."""
    pids = family(pid)
    rss_kib = pss_kib = 0
    for each in pids:
        rss_kib += _status_kib(each, "status", "VmRSS:")
        pss_kib += _status_kib(each, "smaps_rollup", "Pss:")
    return Memory(rss_kib / 1024, pss_kib / 1024, _shm_bytes(pids) / _MIB, _device_mib(pids), len(pids))


def family(pid: int) -> set[int]:
    """A process and its descendants."""
    children = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                # The name, in parentheses, may hold anything; the parent comes second after it.
                parent = Path("/proc", entry, "stat").read_text(encoding="latin-1").rpartition(")")[2].split()[1]
                children[int(parent)].append(int(entry))
    found, waiting = set(), [pid]
    while waiting:
        each = waiting.pop()
        found.add(each)
        waiting += children[each]
    return found


def _status_kib(pid: int, file: str, key: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text(encoding="latin-1").splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    return 0


def _shm_bytes(pids: set[int]) -> int:
    sizes: dict[str, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(encoding="latin-1").splitlines():
                path = line.partition(_SHM)[2].removesuffix(" (deleted)")
                if path and path not in sizes:
                    with contextlib.suppress(OSError):
                        sizes[path] = os.stat(_SHM + path).st_blocks * 512
    return sum(sizes.values())


def _device_mib(pids: set[int]) -> float:
    """Of our processes, or, where nvidia-smi sees none of them (in a container), of the whole device."""
    if shutil.which("nvidia-smi") is None:
        return 0.0
    apps = [line.split(",") for line in _nvidia_smi("--query-compute-apps=pid,used_gpu_memory")]
    ours = [float(used) for pid, used in apps if int(pid) in pids and used.strip().isdigit()]
    return sum(ours) if ours else sum(float(used) for used in _nvidia_smi("--query-gpu=memory.used"))


def _nvidia_smi(query: str) -> list[str]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
