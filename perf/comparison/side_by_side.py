"""Several targets measured turn and turn about, so that a drift of the machine hits all alike.

Takes targets and loads; keeps and prints one `Measurement` a target and load. Knows no suite.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.load import Load, LoadResult, merge
from comparison.targets import Target
from reporting.measurement import Measurement, write
from texts.lengths import Lengths

Loads = Callable[[Target], Sequence[Load]]


@dataclass(frozen=True)
class Plan:
    """What holds for all suites of a run.

    Attributes:
        machine: Folder of the results.
        name: File there.
        results: Where such folders are.
        model: What to call the checkpoint.
        limit: Most tokens of a text.
        turns: In how many turns each target's load is made.
        warm_up: Requests of each client before anything is timed.
        sends: `texts` or `ids`.
    """

    machine: str
    name: str
    results: Path
    model: str
    limit: int
    turns: int
    warm_up: int
    sends: str = "texts"


class SideBySide:
    """Runs loads and collects what they measured."""

    def __init__(self, targets: Sequence[Target], plan: Plan, cosines: Mapping[str, float]) -> None:
        """Wrap what all suites need."""
        self.targets = list(targets)
        self.plan = plan
        self.measurements: list[Measurement] = []
        self._cosines = cosines

    def fitting(self, lengths: Sequence[Lengths]) -> list[Lengths]:
        """Those that the model can read; says which are left out."""
        left_out = [str(each) for each in lengths if each.high > self.plan.limit]
        if left_out:
            print(f"left out: {', '.join(left_out)} tokens, as the model reads {self.plan.limit}", flush=True)
        return [each for each in lengths if each.high <= self.plan.limit]

    def warm_up(self, loads: Loads) -> dict[str, list[LoadResult]]:
        """Make the loads of each target once; nothing is kept but returned."""
        return {target.name: target.generator.run_together(loads(target)) for target in self.targets}

    def take_turns(self, loads: Loads, turns: int | None = None) -> dict[str, list[LoadResult]]:
        """Make the loads of each target in turns, and another target first in each.

        Args:
            loads: Those of one turn of a target, made at once.
            turns: How many; by default the plan's.

        Returns:
            By the name of the target, for each of its loads all turns together.
        """
        parts: dict[str, list[list[LoadResult]]] = {target.name: [] for target in self.targets}
        for number in range(turns or self.plan.turns):
            first = number % len(self.targets)
            for target in self.targets[first:] + self.targets[:first]:
                parts[target.name].append(target.generator.run_together(loads(target)))
        return {name: [merge(results) for results in zip(*rounds, strict=True)] for name, rounds in parts.items()}

    def note(
        self,
        suite: str,
        target: Target,
        result: LoadResult,
        load: Load,
        *,
        note: str | None = None,
        extra: Mapping[str, float] | None = None,
    ) -> None:
        """Keep and print one measurement."""
        if not result.samples_ms:
            print(f"{suite} {target.name}: nothing was answered in time; {'; '.join(result.errors)}", flush=True)
            return
        alone = load.concurrency == 1 and load.rate is None
        counts = len(result.samples_ms)
        self.keep(
            suite,
            target,
            result.samples_ms,
            note=note,
            len=load.lengths.label if load.lengths else None,
            batch=load.batch,
            concurrency=None if load.rate is not None or (alone and suite != "concurrency") else load.concurrency,
            texts=load.batch,
            tokens=round(result.tokens / counts) or None,
            wall_s=_wall_s(load, result) if alone else result.wall_s,
            extra={
                "load_processes": result.processes,
                "load_core_share": round(result.busiest_core_share, 3),
                "load_gap_ms": round(result.gap_ms, 4),
                "requests_per_s": round(counts / result.wall_s, 1),
                **({"failed": result.failed} if result.failed else {}),
                **(extra or {}),
            },
        )

    def keep(
        self, suite: str, target: Target, samples_ms: list[float], *, extra: Mapping[str, float], **fields: Any
    ) -> None:
        """Keep samples as they are, print them, and write all that there is, should the run be cut off."""
        extra = {**extra, "warm_up_requests": self.plan.warm_up, "turns": self.plan.turns}
        if target.name in self._cosines:
            extra["min_cosine"] = round(self._cosines[target.name], 7)
        peer = target.peer
        line = Measurement(
            peer.system if peer.system in target.name else target.name,
            peer.level,
            suite,
            self.plan.model,
            peer.dtype,
            samples_ms,
            protocol=peer.protocol,
            extra=dict(extra),
            **fields,
        )
        self.measurements.append(line)
        print(f"{line.summary()} {line.note or ''} {line.extra}", flush=True)
        write(self.plan.machine, self.plan.name, self.measurements, self.plan.results)


def _wall_s(load: Load, result: LoadResult) -> float | None:
    """Of one client alone, which waits between requests only for its own next text: no matter of the target's.

    Where all requests are alike, the median says more than the sum.
    """
    alike = load.lengths is None or load.lengths.low == load.lengths.high
    return None if alike else sum(result.samples_ms) / 1e3
