"""Cuts a sequence of texts, or of token lists, into requests of bounded size.

Takes items one by one and returns chunks as soon as they are full, so that it works on unbounded input and
for synchronous and asynchronous callers alike. Does not know requests, models or transports.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Chunk(Generic[T]):
    """Items that go into one request.

    Attributes:
        first_row: Place of the first item in the whole input.
        items: The items, at least one.
    """

    first_row: int
    items: list[T]

    @property
    def rows(self) -> range:
        """Places of the items in the whole input."""
        return range(self.first_row, self.first_row + len(self.items))


class Splitter(Generic[T]):
    """Collects items until a chunk is full.

    Args:
        max_rows: Items in a chunk at most.
        max_size: Sum of the sizes in a chunk at most; an item that is larger goes alone.
        first_row: Row number of the first item.
    """

    def __init__(self, max_rows: int, max_size: int, first_row: int = 0) -> None:
        self._max_rows = max_rows
        self._max_size = max_size
        self._first_row = first_row
        self._items: list[T] = []
        self._size = 0

    def add(self, item: T, size: int) -> list[Chunk[T]]:
        """Take one item; returns the chunks that became full, at most two."""
        full: list[Chunk[T]] = []
        if self._items and self._size + size > self._max_size:
            full += self.flush()
        self._items.append(item)
        self._size += size
        if len(self._items) >= self._max_rows or self._size >= self._max_size:
            full += self.flush()
        return full

    def flush(self) -> list[Chunk[T]]:
        """The items collected so far as a chunk; empty if there are none."""
        if not self._items:
            return []
        chunk = Chunk(self._first_row, self._items)
        self._first_row += len(self._items)
        self._items, self._size = [], 0
        return [chunk]


def split(sized: Iterable[tuple[T, int]], splitter: Splitter[T]) -> Iterator[Chunk[T]]:
    """Cut (item, size) pairs into chunks, reading no further ahead than the chunk at hand."""
    for item, size in sized:
        yield from splitter.add(item, size)
    yield from splitter.flush()
