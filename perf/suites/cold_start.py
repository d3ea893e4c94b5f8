"""How long until a target is ready, and how its first requests fare: ready should mean warm.

Only of targets that this command starts: the clock begins with the start of the process. Each start is one of an
empty process, not of an empty cache on disk. The first requests are of mixed lengths, one after the other, as none of
their sizes has been seen before.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field

from clients.load import Load, LoadResult
from comparison.agreement import ask_all, compare, probes
from comparison.side_by_side import Plan, SideBySide
from comparison.targets import Target, Workshop
from peers.contract import Answer
from peers.spec import TargetSpec
from reporting.measurement import positive
from texts.lengths import Lengths, parse_lengths


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--starts", type=positive, default=3, help="of each target")
    parser.add_argument("--requests", type=positive, default=1000, help="after each start")
    parser.add_argument("--len", type=parse_lengths, default=parse_lengths("8-256"), help="tokens: 512, or 8-512")


def lengths(options: argparse.Namespace) -> list[Lengths]:
    """All lengths that it sends."""
    return [options.len]


def run(workshop: Workshop, specs: Sequence[TargetSpec], plan: Plan, options: argparse.Namespace) -> SideBySide:
    """Start every target in turn, `--starts` times; returns what was measured.

    Their vectors are compared once all have been started, before anything is kept.

    Raises:
        ValueError: If a target is not one that we start.
        DisagreementError: If they do not compute the same.
    """
    for spec in specs:
        if spec.address is not None and "command" not in spec.options:
            raise ValueError(f"{spec.kind}={spec.address} is running already: add command= to have it started")
    requests = probes(workshop.rows, [options.len])
    found: dict[str, Starts] = {}
    for _ in range(options.starts):
        for spec in specs:
            with workshop.open([spec]) as (target,):
                starts = found.setdefault(target.name, Starts(target))
                first = target.run(Load(target.peer.endpoint, options.len, rounds=options.requests))
                starts.add(target.ready_s * 1e3, first)
                starts.answers = starts.answers or ask_all(target, requests)
    cosines = compare({name: starts.answers for name, starts in found.items()}, requests, options.min_cosine)
    bench = SideBySide([starts.target for starts in found.values()], plan, cosines)
    for starts in found.values():
        _note(bench, starts, options)
    return bench


@dataclass
class Starts:
    """What all starts of a target gave.

    Attributes:
        target: As it was opened first; it is closed.
        ready_ms: Of each start.
        first_ms: The first request of each.
        all_ms: All requests of all.
        answers: To the requests that are compared.
    """

    target: Target
    ready_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    all_ms: list[float] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def add(self, ready_ms: float, result: LoadResult) -> None:
        """One more."""
        self.ready_ms.append(ready_ms)
        self.first_ms.append(result.samples_ms[0])
        self.all_ms += result.samples_ms


def _note(bench: SideBySide, starts: Starts, options: argparse.Namespace) -> None:
    about = {"starts": float(options.starts)}
    size = {"len": options.len.label, "batch": 1}
    bench.keep("start", starts.target, starts.ready_ms, extra=about, texts=None)
    bench.keep("first", starts.target, starts.first_ms, extra=about, note="the first request", **size)
    note = f"the first {options.requests} requests"
    wall_s = sum(starts.all_ms) / 1e3
    bench.keep("first", starts.target, starts.all_ms, extra=about, note=note, wall_s=wall_s, **size)
