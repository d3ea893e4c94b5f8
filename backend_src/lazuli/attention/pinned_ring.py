"""Pinned host buffers for copies that are under way.

Whoever fills a buffer and queues a copy from it must not fill it again before the copy is over. Instead of waiting for
that, this takes another buffer. Knows nothing of what is copied.
"""

from collections.abc import Callable
from typing import Protocol

import torch


class Event(Protocol):
    """The part of `torch.cuda.Event` that is needed."""

    def record(self) -> None:
        """Mark the end of what is queued on the current stream."""

    def query(self) -> bool:
        """Whether that end was reached."""


class PinnedRing:
    """Buffers of one size, each free again once the copy from it is over. For one thread."""

    def __init__(
        self, num_bytes: int, *, pin_memory: bool = True, make_event: Callable[[], Event] = torch.cuda.Event
    ) -> None:
        """Make an empty ring; buffers are allocated, zeroed, when all others are in use.

        Args:
            num_bytes: Size of each buffer.
            pin_memory: False gives pageable memory, for tests without a GPU.
            make_event: For such tests.
        """
        self._num_bytes = num_bytes
        self._pin_memory = pin_memory
        self._make_event = make_event
        # Oldest first: if that one is not free, no other is.
        self._used: list[tuple[torch.Tensor, Event]] = []

    def __len__(self) -> int:
        """How many buffers there are."""
        return len(self._used)

    def take(self) -> tuple[torch.Tensor, Event]:
        """A uint8 buffer, and the event to record once the copy from it is queued."""
        if self._used and self._used[0][1].query():
            entry = self._used.pop(0)
        else:
            buffer = torch.zeros(self._num_bytes, dtype=torch.uint8, pin_memory=self._pin_memory)
            entry = buffer, self._make_event()
        self._used.append(entry)
        return entry
