"""Closed loops, as most suites need them: so many requests of each client, or so many seconds.

Takes a bench and the shape of a load; warms up, takes turns and notes the results.
"""

from dataclasses import dataclass, replace

from clients.load import Load, LoadResult
from comparison.side_by_side import SideBySide
from comparison.targets import Target
from texts.lengths import Lengths

# A turn sees at least so many requests of each client, and lets at least so many pass before it counts.
_LEAST_REQUESTS = 3
_LEAST_SETTLING = 1.5


@dataclass(frozen=True)
class Shape:
    """A load without its target.

    Attributes:
        suite: As the result file calls it.
        lengths: Tokens of a text.
        batch: Texts of a request.
        clients: How many.
    """

    suite: str
    lengths: Lengths
    batch: int = 1
    clients: int = 1

    def load(self, target: Target, rounds: int | None = None) -> Load:
        """The load on a target."""
        return Load(target.peer.endpoint, self.lengths, self.batch, self.clients, rounds)


def measure_rounds(bench: SideBySide, shape: Shape, requests: int, *, untimed: int = 1) -> None:
    """So many requests of each client in all, `untimed` more at the start of each turn."""
    bench.warm_up(lambda target: [shape.load(target, bench.plan.warm_up)])
    turns = min(bench.plan.turns, requests)
    rounds = -(-requests // turns)
    results = bench.take_turns(lambda target: [replace(shape.load(target, rounds), untimed=untimed)], turns)
    for target in bench.targets:
        bench.note(shape.suite, target, results[target.name][0], shape.load(target))


def measure_seconds(bench: SideBySide, shape: Shape, seconds: float) -> dict[str, LoadResult]:
    """So many seconds of each target in all, longer where requests take long.

    Returns:
        What was noted, by the name of the target.
    """
    warm = bench.warm_up(lambda target: [shape.load(target, bench.plan.warm_up)])

    def load(target: Target) -> Load:
        longest_s = max(warm[target.name][0].samples_ms) / 1e3
        turn_s = max(seconds / bench.plan.turns, _LEAST_REQUESTS * longest_s)
        settle_s = max(turn_s / 10, _LEAST_SETTLING * longest_s)
        return replace(shape.load(target), seconds=turn_s, settle_s=settle_s)

    results = bench.take_turns(lambda target: [load(target)])
    for target in bench.targets:
        timing = {"turn_s": round(load(target).seconds, 3), "settle_s": round(load(target).settle_s, 3)}
        bench.note(shape.suite, target, results[target.name][0], load(target), extra=timing)
    return {name: result[0] for name, result in results.items()}
