"""Requests that come when they come: an open loop at shares of what a target can do at most.

The capacity is measured first, by clients that keep asking. The times are those of a Poisson process and are set
beforehand; a request's time counts from when it was to be sent, so that a target that is late cannot hide it.
"""

import argparse
from dataclasses import replace

from clients.load import Load
from comparison.side_by_side import SideBySide
from comparison.targets import Target
from reporting.measurement import positive
from suites.closed import Shape, measure_seconds
from texts.lengths import Lengths, exactly, parse_lengths

_SETTLE_SHARE = 0.1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--len", type=parse_lengths, default=exactly(512), help="tokens: 512, or 8-512")
    parser.add_argument("--batch", type=positive, default=1, help="texts of a request")
    shares = [50, 60, 70, 80, 90, 100, 110]
    parser.add_argument(
        "--load", type=positive, nargs="+", default=shares, help="percent of each target's own capacity"
    )
    parser.add_argument("--rate", type=float, nargs="+", help="requests a second, the same for all, in place of --load")
    parser.add_argument("--clients", type=positive, default=64, help="that measure the capacity")
    parser.add_argument("--under-way", type=positive, default=256, help="requests under way at once, at most")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each target and rate")


def lengths(options: argparse.Namespace) -> list[Lengths]:
    """All lengths that it sends."""
    return [options.len]


def run(bench: SideBySide, options: argparse.Namespace) -> None:
    """Measure."""
    if not bench.fitting([options.len]):
        return
    if options.rate:
        shape = Shape("arrivals", options.len, options.batch)
        bench.warm_up(lambda target: [shape.load(target, bench.plan.warm_up)])
        for rate in options.rate:
            _measure(bench, options, dict.fromkeys(_names(bench), rate), None)
        return
    shape = Shape("capacity", options.len, options.batch, options.clients)
    found = measure_seconds(bench, shape, options.seconds)
    capacity = {name: len(result.samples_ms) / result.wall_s for name, result in found.items()}
    for share in options.load:
        _measure(bench, options, {name: each * share / 100 for name, each in capacity.items()}, share)


def _measure(bench: SideBySide, options: argparse.Namespace, rates: dict[str, float], share: int | None) -> None:
    turn_s = options.seconds / bench.plan.turns

    def load(target: Target) -> Load:
        shape = Shape("arrivals", options.len, options.batch, options.under_way)
        timing = {"seconds": turn_s, "settle_s": turn_s * _SETTLE_SHARE, "rate": rates[target.name]}
        return replace(shape.load(target), **timing)

    results = bench.take_turns(lambda target: [load(target)])
    for target in bench.targets:
        rate = rates[target.name]
        note = f"{share} % of its capacity" if share else f"{rate:g} requests/s"
        extra = {"offered_per_s": round(rate, 2), **({"load_percent": float(share)} if share else {})}
        bench.note("arrivals", target, results[target.name][0], load(target), note=note, extra=extra)


def _names(bench: SideBySide) -> list[str]:
    return [target.name for target in bench.targets]
