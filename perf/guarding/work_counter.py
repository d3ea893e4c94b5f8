"""Counts the work of a piece of Python in units that do not depend on the machine's speed.

Takes a hot path; returns how many bytecode instructions and calls of C functions it took, and how much memory. All are
the same on every run. Nothing is known of what happens inside a C function: its input has to show in the other numbers.
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

Run = Callable[[], object]
# Makes the input of a piece of work, which is not counted, and returns the work on it, to be called once.
HotPath = Callable[[], Run]
HotPaths = Mapping[str, HotPath]
# The first runs fill caches.
_WARM_UPS = 3


@dataclass(frozen=True)
class Work:
    """What one run took.

    Attributes:
        instructions: Bytecode instructions.
        c_calls: Calls of functions that are not Python's.
        peak_bytes: The most memory that it held beyond what it began with.
    """

    instructions: int
    c_calls: int
    peak_bytes: int


def count_work(path: HotPath) -> Work:
    """Run a path a few times, each time looking at something else."""
    for _ in range(_WARM_UPS):
        path()()
    with _without_collector():
        return Work(_count_instructions(path()), _count_c_calls(path()), _measure_peak_bytes(path()))


@contextmanager
def _without_collector() -> Iterator[None]:
    """No garbage collection in between: when one is due depends on what was done before."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _count_instructions(run: Run) -> int:
    count = 0

    def in_frame(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        nonlocal count
        count += event == "opcode"
        return in_frame

    def on_call(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return in_frame

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def _count_c_calls(run: Run) -> int:
    count = 0

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count - 1  # the call that ends the counting


def _measure_peak_bytes(run: Run) -> int:
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = run()
        _, peak = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return peak - before
