r"""Several suites against targets that are opened once: `run.py` would load each model again for every suite.

    .venv/bin/python perf/run_several.py --suite latency --suite "bulk --warm-up 1 --repeats 2" --prefix both -- \
        --machine h200 --target lazuli-engine --target vllm-engine --send ids

What is behind `--` goes to each suite, as `run.py` takes it; each writes a file of its own, PREFIX_SUITE; one that
comes twice needs a `--name` of its own. One that fails is told, and the others still run.
"""

import argparse
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import run
from clients.unusable import UnusableError
from comparison.side_by_side import Plan
from comparison.targets import Target, Workshop
from lazuli.errors import ConfigError
from lazuli.launch.errors import LaunchError
from peers.json_server import end_when_told
from reporting.measurement import file_name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; returns the exit status."""
    options = _parse(arguments)
    suites = [run.parse(_arguments(suite, options)) for suite in options.suite]
    try:
        _refuse_one_file(suites)
        prepared = [(suite, *run.prepare(suite)) for suite in suites]
        _, workshop, _ = prepared[0]
        with workshop.open(suites[0].target) as targets:
            failed = [each[0].suite for each in prepared if not _succeeds(targets, *each)]
    except (ValueError, ConfigError, LaunchError, UnusableError) as error:
        print(f"run_several.py: {error}", file=sys.stderr)
        return 1
    print(f"{len(suites)} suites, failed: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed else 0


def _refuse_one_file(suites: Sequence[argparse.Namespace]) -> None:
    """See that no suite writes over what another has written.

    Raises:
        ValueError: If two have one file.
    """
    files: set[Path] = set()
    for suite in suites:
        file = (suite.results / suite.machine / f"{suite.name}.jsonl").resolve()
        if file in files:
            raise ValueError(f"two suites would write {file.name}: give one a --name of its own, in its --suite")
        files.add(file)


def _succeeds(targets: list[Target], options: argparse.Namespace, workshop: Workshop, plan: Plan) -> bool:
    print(f"{options.suite}:", flush=True)
    try:
        run.measure(targets, workshop, plan, options)
    except Exception:
        # Whatever a target throws: the suites that follow are worth having all the same.
        traceback.print_exc()
        return False
    return True


def _arguments(suite: Sequence[str], options: argparse.Namespace) -> list[str]:
    name, *own = suite
    return [name, "--name", f"{options.prefix}_{name}", *options.common, *own]


def _suite(text: str) -> list[str]:
    """A suite and its own options, for `--suite`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if not words:
        raise argparse.ArgumentTypeError("it names no suite")
    if words[0] == run.COLD_START:
        raise argparse.ArgumentTypeError(f"{run.COLD_START} opens its targets itself: run it with run.py")
    return words


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--suite", type=_suite, action="append", required=True, help="with its own options, in one word"
    )
    parser.add_argument("--prefix", type=file_name, required=True, help="of the result files' names")
    parser.add_argument("common", nargs="*", metavar="-- OPTION", help="of all suites")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    end_when_told()
    sys.exit(main())
