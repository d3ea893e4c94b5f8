"""More and more clients of one text each: what many users get, tokenising and network included."""

import argparse

from comparison.side_by_side import SideBySide
from reporting.measurement import positive
from suites.closed import Shape, measure_seconds
from texts.lengths import Lengths, exactly, parse_lengths


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    clients = [1, 2, 4, 8, 16, 32, 64]
    parser.add_argument("--concurrency", type=positive, nargs="+", default=clients, help="clients")
    parser.add_argument("--len", type=parse_lengths, nargs="+", default=[exactly(512)], help="tokens of a text")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each target and number of clients")


def lengths(options: argparse.Namespace) -> list[Lengths]:
    """All lengths that it sends."""
    return list(options.len)


def run(bench: SideBySide, options: argparse.Namespace) -> None:
    """Measure."""
    for each in bench.fitting(options.len):
        for clients in options.concurrency:
            measure_seconds(bench, Shape("concurrency", each, clients=clients), options.seconds)
