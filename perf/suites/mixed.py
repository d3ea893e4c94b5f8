"""Short queries beside bulk documents: how much people who wait suffer from an index that is being made.

The queries come at the times of a Poisson process, first alone, then while clients keep asking for many documents.
Their percentiles are told apart from those of the documents.
"""

import argparse
from dataclasses import replace

from clients.load import Load
from comparison.side_by_side import SideBySide
from comparison.targets import Target
from reporting.measurement import positive
from suites.closed import Shape
from texts.lengths import Lengths, exactly, parse_lengths

_QUERIES_UNDER_WAY = 16
_SETTLE_SHARE = 0.2


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--query-len", type=parse_lengths, default=parse_lengths("8-32"), help="tokens of a query")
    parser.add_argument("--query-rate", type=float, default=10.0, help="queries a second")
    parser.add_argument("--len", type=parse_lengths, default=exactly(512), help="tokens of a document")
    parser.add_argument("--batch", type=positive, default=32, help="documents of a request")
    parser.add_argument("--clients", type=positive, default=2, help="that ask for documents")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each target, alone and beside documents")


def lengths(options: argparse.Namespace) -> list[Lengths]:
    """All lengths that it sends."""
    return [options.query_len, options.len]


def run(bench: SideBySide, options: argparse.Namespace) -> None:
    """Measure."""
    if len(bench.fitting(lengths(options))) < len(lengths(options)):
        return
    turn_s = options.seconds / bench.plan.turns
    timing = {"seconds": turn_s, "settle_s": turn_s * _SETTLE_SHARE}

    def queries(target: Target) -> Load:
        shape = Shape("mixed", options.query_len, clients=_QUERIES_UNDER_WAY)
        return replace(shape.load(target), rate=options.query_rate, **timing)

    def documents(target: Target) -> Load:
        return replace(Shape("mixed", options.len, options.batch, options.clients).load(target), **timing)

    bench.warm_up(lambda target: [Shape("mixed", options.query_len).load(target, bench.plan.warm_up)])
    bench.warm_up(lambda target: [replace(documents(target), rounds=bench.plan.warm_up)])
    alone = bench.take_turns(lambda target: [queries(target)])
    beside = bench.take_turns(lambda target: [queries(target), documents(target)])
    for target in bench.targets:
        rate = {"offered_per_s": options.query_rate}
        bench.note("mixed", target, alone[target.name][0], queries(target), note="queries alone", extra=rate)
        under_load, bulk = beside[target.name]
        bench.note("mixed", target, under_load, queries(target), note="queries beside documents", extra=rate)
        bench.note("mixed", target, bulk, documents(target), note="the documents")
