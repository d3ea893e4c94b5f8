"""What a target holds over time under a steady load: memory of its processes, shared memory, memory of the device.

Only of targets that this command starts, or whose first process `--pid` names. A line a turn, with the requests of
that turn as samples and the largest readings in it as extras.
"""

import argparse
from dataclasses import replace

from comparison.side_by_side import SideBySide
from instruments.process_memory import MemoryWatch
from reporting.measurement import positive
from suites.closed import Shape
from texts.lengths import Lengths, parse_lengths


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--len", type=parse_lengths, default=parse_lengths("8-256"), help="tokens: 512, or 8-512")
    parser.add_argument("--batch", type=positive, default=8, help="texts of a request")
    parser.add_argument("--concurrency", type=positive, default=8, help="clients")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each target")
    parser.add_argument("--pid", type=positive, nargs="*", default=[], help="of each target with an address, in order")


def lengths(options: argparse.Namespace) -> list[Lengths]:
    """All lengths that it sends."""
    return [options.len]


def run(bench: SideBySide, options: argparse.Namespace) -> None:
    """Measure.

    Raises:
        ValueError: If it is not known which processes a target has.
    """
    if not bench.fitting([options.len]):
        return
    pids = _pids(bench, list(options.pid))
    shape = Shape("memory", options.len, options.batch, options.concurrency)
    turn_s = options.seconds / bench.plan.turns
    for number in range(bench.plan.turns + 1):
        for target in bench.targets:
            # The first is before any load: a request of one client, for a sample.
            load = (
                replace(shape.load(target), seconds=turn_s) if number else replace(shape.load(target, 1), concurrency=1)
            )
            with MemoryWatch(pids[target.name]) as watch:
                result = target.run(load)
            extra = {"turn": float(number), "loaded_s": round(number * turn_s, 3), **watch.peak.as_extra()}
            note = f"after {number * turn_s:g} s of load" if number else "before the load"
            bench.note("memory", target, result, load, note=note, extra=extra)


def _pids(bench: SideBySide, given: list[int]) -> dict[str, int]:
    pids = {}
    for target in bench.targets:
        pid = target.pid or (given.pop(0) if given else None)
        if pid is None:
            raise ValueError(f"{target.name} was not started here: name its first process with --pid")
        pids[target.name] = pid
    return pids
