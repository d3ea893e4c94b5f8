"""Every request of a locust run, what is demanded of them, and their lines in a result file.

Takes samples; returns what was missed, and measurements. Knows nothing of locust.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from reporting.measurement import Measurement
from swarm.traffic import KINDS, RERANK, Kind

# Protocol, name of the kind, time in ms, whether it failed: what travels from the processes that make the load.
Sample = tuple[str, str, float, bool]
_KINDS = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Goals:
    """What a run has to reach; None where nothing is demanded.

    Attributes:
        p99_ms: Most that the 99th percentile may be, of the requests for whose answers somebody waits; of all if there
            are none of those.
        failures: Most requests that may fail, as a share.
        texts_per_s: Fewest texts, and pairs, that have to be answered in a second.
    """

    p99_ms: float | None = None
    failures: float | None = None
    texts_per_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is something to reach."""
        return (self.p99_ms, self.failures, self.texts_per_s) != (None, None, None)

    def missed(self, samples: Iterable[Sample], wall_s: float) -> Iterator[str]:
        """What was not reached, in words.

        Args:
            samples: All requests.
            wall_s: How long they took together.
        """
        samples = list(samples)
        if not samples:
            yield "there was no request"
            return
        share = sum(failed for _, _, _, failed in samples) / len(samples)
        allowed = self.failures or 0.0
        if share > allowed:
            yield f"{share:.2%} of {len(samples)} requests failed, and {allowed:.2%} may"
        answered = [(_KINDS[name], time_ms) for _, name, time_ms, failed in samples if not failed]
        yield from self._too_late(answered)
        rate = sum(kind.rows for kind, _ in answered) / wall_s if wall_s > 0 else 0.0
        if self.texts_per_s is not None and rate < self.texts_per_s:
            yield f"{rate:.1f} texts/s, and it should be {self.texts_per_s:g} or more"

    def _too_late(self, answered: list[tuple[Kind, float]]) -> Iterator[str]:
        times = [time_ms for kind, time_ms in answered if kind.interactive] or [time_ms for _, time_ms in answered]
        if self.p99_ms is None or not times:
            return
        p99_ms = float(np.percentile(times, 99))
        if p99_ms > self.p99_ms:
            yield f"p99 of {len(times)} requests is {p99_ms:.1f} ms, and it may be {self.p99_ms:g}"


def to_measurements(samples: Iterable[Sample], wall_s: float, shape: str, users: int) -> list[Measurement]:
    """A line for each kind and protocol that was answered.

    Args:
        samples: All requests.
        wall_s: How long they took together.
        shape: Of `swarm.traffic.SHAPES`.
        users: Most that there were.
    """
    groups: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for protocol, name, time_ms, failed in samples:
        groups[protocol, name].append((time_ms, failed))
    return [
        _measurement(protocol, _KINDS[name], members, wall_s, f"{shape}; {name}; {users} users")
        for (protocol, name), members in sorted(groups.items())
        if not all(failed for _, failed in members)
    ]


def _measurement(protocol: str, kind: Kind, members: list[tuple[float, bool]], wall_s: float, note: str) -> Measurement:
    return Measurement(
        "lazuli (locust)",
        "server",
        "locust",
        "rerank" if kind is RERANK else "embed",
        "auto",
        [time_ms for time_ms, failed in members if not failed],
        batch=kind.rows,
        protocol=protocol,
        texts=kind.rows,
        wall_s=wall_s,
        note=note,
        extra={"failures": float(sum(failed for _, failed in members))},
    )
