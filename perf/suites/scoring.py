"""One request at a time, of several texts: the candidates of one search."""

import argparse

from comparison.side_by_side import SideBySide
from reporting.measurement import positive
from suites.closed import Shape, measure_rounds
from texts.lengths import Lengths, exactly, parse_lengths


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--batch", type=positive, nargs="+", default=[5, 25, 50], help="texts of a request")
    parser.add_argument("--len", type=parse_lengths, nargs="+", default=[exactly(512)], help="tokens of a text")
    parser.add_argument("--repeats", type=positive, default=50, help="requests of each kind")


def lengths(options: argparse.Namespace) -> list[Lengths]:
    """All lengths that it sends."""
    return list(options.len)


def run(bench: SideBySide, options: argparse.Namespace) -> None:
    """Measure."""
    for each in bench.fitting(options.len):
        for batch in options.batch:
            measure_rounds(bench, Shape("scoring", each, batch), options.repeats)
