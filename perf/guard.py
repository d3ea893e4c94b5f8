"""Whether the hot paths that run in Python take more work than they did: part of `make check`.

    .venv/bin/python perf/guard.py                       counts, against what was accepted last
    .venv/bin/python perf/guard.py --against HEAD~3      counts, against a commit
    .venv/bin/python perf/guard.py --update              accepts today's counts
    .venv/bin/python perf/guard.py --times               times, against the last commit, side by side

Counted are bytecode instructions, calls of C functions and memory, which are the same on every machine and at every
load; `guard_baseline.json` has what was accepted, for one version of Python and of the libraries. With others, the last
commit is counted as well, and compared with. Ends with 1 if a path takes more than `--tolerance` allows, so that more
work is either a mistake that is found or a decision that can be read in the history of that file.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from guarding import baseline
from guarding.baseline import Counts, compare, describe_environment
from guarding.source_tree import WORKING_TREE, commit_tree, environment_of
from guarding.times import WORKER, compare_times
from reporting.measurement import positive

_COUNT_TOLERANCE = 0.05
_TIME_TOLERANCE = 0.1


def count(tree: Path, words: Sequence[str] = ()) -> Counts:
    """The work of the hot paths in a source tree.

    Args:
        tree: Its folder.
        words: Only paths that have one of these in their name, if there are any.
    """
    command = [sys.executable, *WORKER, str(tree), "count", *words]
    done = subprocess.run(command, env=environment_of(tree), stdout=subprocess.PIPE, text=True, check=True)
    counts: Counts = json.loads(done.stdout)
    return counts


def check(tree: Path, against: str | None, words: Sequence[str], tolerance: float) -> int:
    """Compare counts with the baseline, or with a commit; returns the exit status."""
    environment, before = baseline.read()
    if words:
        before = {name: work for name, work in before.items() if any(word in name for word in words)}
    source = "what was accepted last"
    if against is None and environment != describe_environment():
        print(f"guard: accepted counts are of {_join(environment)}; this is {_join(describe_environment())}")
        against = "HEAD"
    if against is not None:
        source = f"commit {against}"
        try:
            with commit_tree(against) as folder:
                before = {name: work for name, work in count(folder, words).items() if work is not None}
        except LookupError as error:
            print(f"guard: nothing to compare with: {error}")
            return 0
    now = count(tree, words)
    if against is not None:  # that commit has no path which is new here
        now = {name: work for name, work in now.items() if name in before or work is None}
    return _report(before, now, tolerance, source)


def _report(before: Counts, now: Counts, tolerance: float, source: str) -> int:
    changes = list(compare(before, now, tolerance))
    grown = [change for change in changes if change.is_growth]
    for change in changes:
        print(f"{'MORE' if change.is_growth else 'less'}  {change}")
    if grown:
        print(f"guard: more work than in {source}; if that is meant, accept it with perf/guard.py --update")
    else:
        print(f"guard: none of {len(now)} hot paths takes more than {1 + tolerance:.0%} of {source}")
        if changes:
            print("guard: some take less; keep that with perf/guard.py --update")
    return int(bool(grown))


def check_times(tree: Path, against: str, rounds: int, tolerance: float) -> int:
    """Compare times with a commit; returns the exit status."""
    slower = 0
    with commit_tree(against) as folder:
        for ratio in compare_times(folder, tree, rounds):
            is_slower = ratio.lower > 1 + tolerance
            slower += is_slower
            print(f"{'SLOWER' if is_slower else '      '}  {ratio}", flush=True)
    return int(slower > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="a commit to compare with")
    parser.add_argument("--update", action="store_true", help="accept today's counts")
    parser.add_argument("--times", action="store_true", help="compare times and not counts")
    parser.add_argument("--tolerance", type=float, help="share of more that is allowed: 0.05, with --times 0.1")
    parser.add_argument("--rounds", type=positive, default=20, help="of --times; at least 2")
    parser.add_argument("--tree", type=Path, default=WORKING_TREE, help="the source; this one unless another is given")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="paths that have a word in their name")
    options = parser.parse_args(arguments)
    if options.update:
        baseline.write(count(options.tree))
        return 0
    if options.times:
        tolerance = _TIME_TOLERANCE if options.tolerance is None else options.tolerance
        return check_times(options.tree, options.against or "HEAD", max(2, options.rounds), tolerance)
    tolerance = _COUNT_TOLERANCE if options.tolerance is None else options.tolerance
    return check(options.tree, options.against, options.only, tolerance)


def _join(environment: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in environment.items()) or "nowhere"


if __name__ == "__main__":
    sys.exit(main())
