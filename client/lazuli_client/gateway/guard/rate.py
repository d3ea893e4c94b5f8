"""How many requests may come in a second.

Takes a name (a key or an address) and the time, returns how long to wait. Processes that are given a file count
together.
"""

import contextlib
import fcntl
import hashlib
import math
import mmap
import os
import struct
from collections.abc import Iterator

# Where the command tells its processes the file.
FILE = "LAZULI_GATEWAY_RATES"
_BURST_S = 2.0
# Of a name: its digest, its level, and when it had that.
_SLOT = struct.Struct("=16sdd")
_SLOTS = 16_384
# Slots that a name may have; the one among them that was seen longest ago gives way, as it is full again, or nearly.
_PLACES = 8


class Rate:
    """A bucket of tokens for each name, full for two seconds' worth of requests, at least one."""

    def __init__(self, per_s: float, path: str | None = None) -> None:
        """Allow so many requests a second; 0 allows any number.

        Args:
            per_s: Requests a second for each name.
            path: File that other processes count in, too; made if it is not there.
        """
        self._per_s = per_s
        self._size = max(1.0, per_s * _BURST_S)
        self._file = -1
        if per_s and path is not None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(self._file, _SLOTS * _SLOT.size)
        self._table = mmap.mmap(self._file, _SLOTS * _SLOT.size if per_s else 1)

    def wait_s(self, name: str, now: float) -> float:
        """0 if the request may go on, and is counted; else seconds until one may.

        Args:
            name: Who asks.
            now: Time of the event loop, whose clock is that of the machine.
        """
        if not self._per_s:
            return 0.0
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        with self._locked():
            place, level, then = self._find(digest, now)
            level = min(self._size, level + max(0.0, now - then) * self._per_s)
            wait_s = 0.0 if level >= 1.0 else (1.0 - level) / self._per_s
            _SLOT.pack_into(self._table, place, digest, level if wait_s else level - 1.0, now)
        return wait_s

    def _find(self, digest: bytes, now: float) -> tuple[int, float, float]:
        """Where the name is kept, its level and when it had that; a name that is new is full."""
        first, oldest, found = int.from_bytes(digest[:4], "little"), math.inf, 0
        for step in range(_PLACES):
            place = (first + step) % _SLOTS * _SLOT.size
            known, level, then = _SLOT.unpack_from(self._table, place)
            if known == digest:
                return place, level, then
            if then < oldest:
                oldest, found = then, place
        return found, self._size, now

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes out, for some microseconds."""
        if self._file < 0:
            yield
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
