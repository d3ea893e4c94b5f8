"""Reads what the processes of a server hold: memory, threads, files.

Takes a process id; adds to series. Needs /proc only.
"""

import os
from pathlib import Path

from instruments.process_memory import family, read_memory
from soaking.growth import WHOLE, Held


def read(pid: int, requests: int, held: dict[str, Held]) -> None:
    """Add a reading of each process of a family, and of all together; those that end meanwhile are left out."""
    threads = files = 0
    for each in family(pid):
        try:
            status = Path(f"/proc/{each}/status").read_text(encoding="latin-1")
            own_files = len(os.listdir(f"/proc/{each}/fd"))
            name = _name(each)
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines())
        if "VmRSS" not in fields:  # it has just ended
            continue
        rss_kib, own_threads = int(fields["VmRSS"].split()[0]), int(fields["Threads"])
        one = held.setdefault(name, Held())
        one.pids.add(each)
        one.add(requests, rss_mib=rss_kib / 1024, threads=own_threads, files=own_files)
        threads, files = threads + own_threads, files + own_files
    memory = read_memory(pid)
    held.setdefault(WHOLE, Held()).add(
        requests,
        rss_mib=memory.rss_mib,
        pss_mib=memory.pss_mib,
        shm_mib=memory.shm_mib,
        device_mib=memory.device_mib,
        threads=threads,
        files=files,
    )


def can_be_read(pid: int) -> bool:
    """Whether there is such a process, and what it holds may be read."""
    held: dict[str, Held] = {}
    read(pid, 0, held)
    return any(pid in one.pids for one in held.values())


def _name(pid: int) -> str:
    """The model of a stub, else what the process is."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    model = next((Path(word).parts[-3] for word in words if word.endswith("/1/model.py")), None)
    if model is not None:
        return model
    return "lazuli serve" if "serve" in words else Path(words[0]).name or str(pid)
