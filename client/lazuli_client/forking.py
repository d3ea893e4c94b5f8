"""What becomes of clients in a child process after `os.fork`.

Takes objects with an `after_fork`, calls it in each child before anything else runs there. Does not know what they
hold. Threads do not survive a fork, and two processes that read from one connection take each other's answers.
"""

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """Something that a child process must not use as it is."""

    def after_fork(self) -> None:
        """Replace what belongs to the parent; called in the child, in its only thread."""


_watched: "weakref.WeakSet[Forked]" = weakref.WeakSet()


def watch(item: Forked) -> None:
    """Call `item.after_fork` in every child, as long as somebody else holds `item`."""
    _watched.add(item)


def _after_fork() -> None:
    for item in list(_watched):
        item.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)
