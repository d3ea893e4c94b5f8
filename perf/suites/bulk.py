"""Clients that keep asking for many texts at once: an index that is being made."""

import argparse

from comparison.side_by_side import SideBySide
from reporting.measurement import positive
from suites.closed import Shape, measure_rounds
from texts.lengths import Lengths, exactly, parse_lengths

# What the result files and the report have always called it.
_SUITE = "throughput"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    lengths = [exactly(length) for length in (512, 1024, 4096)]
    parser.add_argument("--len", type=parse_lengths, nargs="+", default=lengths, help="tokens: 512, or 8-512")
    parser.add_argument("--batch", type=positive, nargs="+", default=[100], help="texts of a request")
    parser.add_argument("--clients", type=positive, default=4)
    parser.add_argument("--repeats", type=positive, default=5, help="requests of each client, one a turn")


def lengths(options: argparse.Namespace) -> list[Lengths]:
    """All lengths that it sends."""
    return list(options.len)


def run(bench: SideBySide, options: argparse.Namespace) -> None:
    """Measure."""
    for each in bench.fitting(options.len):
        for batch in options.batch:
            measure_rounds(bench, Shape(_SUITE, each, batch, options.clients), options.repeats, untimed=0)
