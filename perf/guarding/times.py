"""Times the hot paths of two source trees turn and turn about, each in a process of its own.

Takes two folders; returns for each path the ratios of their times. Both share every moment of the machine's moods, so
the ratios hold on one that is slow or busy.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from types import TracebackType
from typing import Any, Self

from guarding.source_tree import environment_of

# `-P`: the folder it is started in is not on its path.
WORKER = ("-P", "-m", "guarding.worker")
# Long enough to be measured, short enough that both trees meet the same machine.
_TURN_NS = 2_000_000
_MOST_RUNS = 2_000
_SUSPECT = 1.05


@dataclass(frozen=True)
class Ratio:
    """How long one path takes in the second tree, compared with the first.

    Attributes:
        path: Its name.
        ns: Median time of one run in the first tree.
        ratios: Of each round: time in the second tree over time in the first.
    """

    path: str
    ns: float
    ratios: Sequence[float]

    @property
    def middle(self) -> float:
        """The median."""
        return median(self.ratios)

    @property
    def lower(self) -> float:
        """The lower quartile: three of four rounds say that it is at least this much."""
        return quantiles(self.ratios, n=4)[0]

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.ns / 1e3:.1f} µs × {self.middle:.2f} (three of four rounds: {self.lower:.2f} or more)"
        )


class Timer:
    """A process that times the paths of one tree."""

    def __init__(self, tree: Path) -> None:
        """Start it, on the one core that all of them use, for what else runs there slows down all of them alike."""
        command = [sys.executable, *WORKER, str(tree), "time"]
        self._process = subprocess.Popen(
            command, env=environment_of(tree), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        os.sched_setaffinity(self._process.pid, {min(os.sched_getaffinity(0))})
        self.paths: list[str] = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:  # closes the pipes, which ends it
            pass

    def time(self, path: str, runs: int) -> float | None:
        """Time of one run in ns; None if this tree has no such path."""
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.write(json.dumps({"path": path, "runs": runs}) + "\n")
        self._process.stdin.flush()
        elapsed: int | None = self._read()
        return None if elapsed is None else elapsed / runs

    def _read(self) -> Any:
        assert self._process.stdout is not None, "it was asked for"
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process that times hot paths ended with {self._process.wait()}")
        return json.loads(line)


def compare_times(before: Path, now: Path, rounds: int) -> Iterator[Ratio]:
    """Time every path that both trees have; in each round the other one comes first.

    A path that looks slower is timed twice: the second time decides.
    """
    with ExitStack() as stack:
        first, second = (stack.enter_context(Timer(tree)) for tree in (before, now))
        for path in second.paths:
            runs = _choose_runs(first, second, path)
            if runs is None:
                continue
            ratio = _time_rounds(first, second, path, runs, rounds)
            yield ratio if ratio.lower <= _SUSPECT else _time_rounds(first, second, path, runs, rounds)


def _time_rounds(first: Timer, second: Timer, path: str, runs: int, rounds: int) -> Ratio:
    pairs = [_time_both(first, second, path, runs, turn % 2 == 1) for turn in range(rounds)]
    return Ratio(path, median(then for then, _ in pairs), [today / then for then, today in pairs])


def _choose_runs(first: Timer, second: Timer, path: str) -> int | None:
    """How many runs make a turn, both warmed up; None if a tree has no such path."""
    guesses = [timer.time(path, 20) for timer in (first, second)]
    if None in guesses:
        return None
    return max(1, min(_MOST_RUNS, int(_TURN_NS / max(guess or 1 for guess in guesses))))


def _time_both(first: Timer, second: Timer, path: str, runs: int, swapped: bool) -> tuple[float, float]:
    times = {timer: timer.time(path, runs) or 1.0 for timer in ((second, first) if swapped else (first, second))}
    return times[first], times[second]
