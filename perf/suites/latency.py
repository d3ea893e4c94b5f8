"""One text at a time: what a person who waits for one answer gets."""

import argparse

from comparison.side_by_side import SideBySide
from reporting.measurement import positive
from suites.closed import Shape, measure_rounds
from texts.lengths import Lengths, exactly, parse_lengths


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    lengths = [exactly(length) for length in (16, 128, 512, 4096)]
    parser.add_argument("--len", type=parse_lengths, nargs="+", default=lengths, help="tokens: 512, or 8-512")
    parser.add_argument("--repeats", type=positive, default=200, help="requests of each length")


def lengths(options: argparse.Namespace) -> list[Lengths]:
    """All lengths that it sends."""
    return list(options.len)


def run(bench: SideBySide, options: argparse.Namespace) -> None:
    """Measure."""
    for each in bench.fitting(options.len):
        measure_rounds(bench, Shape("latency", each), options.repeats)
