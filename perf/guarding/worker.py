"""The process that runs the hot paths of one source tree, for `guard.py`.

    PYTHONPATH=TREE/backend_src:TREE/client:perf python -P -m guarding.worker TREE count [WORD ...]
    PYTHONPATH=... python -P -m guarding.worker TREE time

`count` prints a JSON object: for each path the work of one run, or null if this tree has no such path. `time` answers
lines of `{"path": NAME, "runs": N}` on its input with the processor time of so many runs in ns, or null.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from guarding.work_counter import HotPath, HotPaths, count_work

# What running a path of today on the code of another commit may end in.
_STRANGE = (ImportError, AttributeError, TypeError, KeyError)


def all_paths() -> HotPaths:
    """Every hot path that can be made of this tree."""
    paths: dict[str, HotPath] = {}
    for name in ("server", "client"):
        try:
            paths |= getattr(import_module(f"guarding.{name}_paths"), f"{name}_paths")()
        except ImportError as error:
            print(f"no hot paths of the {name} here: {error}", file=sys.stderr)
    return paths


def check_source(tree: Path) -> None:
    """Make sure that what is measured is the code of the tree, and not what is installed.

    Raises:
        RuntimeError: If it is not.
    """
    import lazuli
    import lazuli_client

    for module in (lazuli, lazuli_client):
        if not Path(str(module.__file__)).resolve().is_relative_to(tree.resolve()):
            raise RuntimeError(f"{module.__name__} is from {module.__file__} and not from {tree}")


def count(words: Sequence[str]) -> dict[str, dict[str, int] | None]:
    """The work of each path that has one of the words in its name; of all if there are none."""
    chosen = {name: path for name, path in all_paths().items() if not words or any(word in name for word in words)}
    return {name: _count_one(path) for name, path in chosen.items()}


def _count_one(path: HotPath) -> dict[str, int] | None:
    try:
        return asdict(count_work(path))
    except _STRANGE as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return None


def time_runs(path: HotPath, runs: int) -> int | None:
    """Processor time of this thread for so many runs, in ns; what others do on the machine is not in it."""
    try:
        work = [path() for _ in range(runs)]
        before = time.thread_time_ns()
        for run in work:
            run()
        return time.thread_time_ns() - before
    except _STRANGE:
        return None


def _answer_times() -> None:
    paths = all_paths()
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        print(json.dumps(time_runs(paths[asked["path"]], asked["runs"])), flush=True)


if __name__ == "__main__":
    check_source(Path(sys.argv[1]))
    if sys.argv[2] == "count":
        print(json.dumps(count(sys.argv[3:])))
    else:
        print(json.dumps(list(all_paths())), flush=True)
        _answer_times()
