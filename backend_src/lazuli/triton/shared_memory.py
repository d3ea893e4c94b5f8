"""Room in the shared memory through which answers leave this process.

Takes the size of an answer, says when it may be sent. Triton 24.10 ends a response sender before it finds out that
memory is short: the request of an answer that was sent too early can never be answered. So this looks first, and waits
until others have left.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol

from lazuli.errors import ReplyError

_FOLDER = "/dev/shm"
# By so much `lazuli serve` lets a region grow; a stock server takes less.
_GROWTH_BYTES = 16 << 20
# What a response needs beside its tensors, and room for those in pieces.
_EXTRA_BYTES = 64 << 10
_FACTOR = 2
# With so many times what is needed, several threads may send at once.
_PLENTY = 8
_PAUSE_S = 0.005


class Pool(Protocol):
    """What the stub has for it."""

    def free_memory(self) -> int:
        """Bytes that are free in the region of this process."""


class AnswerRoom:
    """Lets answers through as there is room for them."""

    def __init__(
        self, pool: Pool | None, patience_s: float = 10.0, folder_bytes: Callable[[], int] | None = None
    ) -> None:
        """Look at a pool.

        Args:
            pool: The region of this process; None where it is not known: then there is always room.
            patience_s: How long an answer may wait.
            folder_bytes: Free bytes from which regions grow.
        """
        self._pool = pool
        self._patience_s = patience_s
        self._folder_bytes = folder_bytes or _free_in_folder
        self._turn = threading.Lock()

    @contextmanager
    def reserve(self, num_bytes: int) -> Iterator[bool]:
        """Wait for room; inside, an answer of so many bytes may be sent, unless it is False: there was none in time."""
        needed = _FACTOR * num_bytes + _EXTRA_BYTES
        if self._pool is None or self._pool.free_memory() >= _PLENTY * needed:
            yield True
            return
        with self._turn:  # another one must not take what this one has found
            yield self._wait(needed)

    def _wait(self, needed: int) -> bool:
        deadline = time.monotonic() + self._patience_s
        while not self._fits(needed):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
        return True

    def _fits(self, needed: int) -> bool:
        assert self._pool is not None, "the caller has looked"
        return self._pool.free_memory() >= needed or self._folder_bytes() >= _GROWTH_BYTES + needed


def no_room(num_bytes: int) -> ReplyError:
    """The error in the place of an answer of so many bytes."""
    return ReplyError(f"shared memory is full: no room for {num_bytes} bytes in time")


def find_pool() -> Pool | None:
    """The region of this process, if this runs in a stub that shows it."""
    try:
        module = import_module("c_python_backend_utils")
    except ImportError:
        return None
    pool: Pool | None = getattr(module, "shared_memory", None)
    return pool if hasattr(pool, "free_memory") else None


def _free_in_folder() -> int:
    try:
        state = os.statvfs(_FOLDER)
    except OSError:
        return 0
    return state.f_bavail * state.f_frsize
