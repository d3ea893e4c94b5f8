"""Measured times of attention backends, and which is the quickest for a batch.

Takes the table that `perf/bench_attention.py` writes. Knows nothing of the backends but their names.
"""

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazuli.attention.base import AttentionShape

TABLE = Path(__file__).with_name("table.json")
# How unlike two head shapes are, in doublings: another head dimension means other kernels.
_WEIGHTS = {"head_dim": 8.0, "group": 2.0, "num_heads": 1.0}
_OTHER_MASK = 4.0


@dataclass(frozen=True)
class Entry:
    """One measured batch.

    Attributes:
        shape: Of the heads; its number of layers means nothing.
        num_tokens: Of the batch.
        length: Of its texts, see `typical_length`.
        call_us: Time of one layer on the GPU, by backend.
        plan_us: Time of the plan on the host, by backend.
    """

    shape: AttentionShape
    num_tokens: int
    length: float
    call_us: dict[str, float]
    plan_us: dict[str, float]

    def batch_us(self, backend: str, num_layers: int) -> float:
        """Time of a whole pass. The plan counts in full: with nothing else in flight, it delays the first kernel."""
        return num_layers * self.call_us[backend] + self.plan_us.get(backend, 0.0)

    def quickest(self, among: Collection[str], num_layers: int) -> str | None:
        """The quickest of these backends, or None if none of them was measured."""
        known = [backend for backend in self.call_us if backend in among]
        return min(known, key=lambda backend: self.batch_us(backend, num_layers), default=None)


def typical_length(num_tokens: int, num_sequences: int, max_seqlen: int) -> float:
    """Between the mean and the longest: the one ignores a long text among short ones, the other may be a mere bound."""
    return math.sqrt(min(max_seqlen, num_tokens) * max(num_tokens / num_sequences, 1.0))


def read_entries(gpu: str, capability: tuple[int, int], file: Path = TABLE) -> list[Entry]:
    """What was measured on a GPU of that name, or else on one of the same capability."""
    lines = json.loads(file.read_text(encoding="utf-8"))
    same_name = [line for line in lines if line["gpu"] == gpu]
    return [_entry(line) for line in same_name or lines if same_name or line["capability"] == list(capability)]


def entries_for(shape: AttentionShape, entries: Iterable[Entry]) -> list[Entry]:
    """Those of the head shape that is most like `shape`."""
    by_distance: dict[float, list[Entry]] = {}
    for entry in entries:
        by_distance.setdefault(_unlikeness(shape, entry.shape), []).append(entry)
    return by_distance[min(by_distance)] if by_distance else []


def within(entries: Iterable[Entry], longest: int) -> list[Entry]:
    """Those that a text of at most `longest` tokens can be like: up to the first that is as long."""
    entries = list(entries)
    limit = min((entry.length for entry in entries if entry.length >= longest), default=math.inf)
    return [entry for entry in entries if entry.length <= limit]


def nearest(entries: Iterable[Entry], num_tokens: int, length: float) -> Entry:
    """The entry whose tokens and length differ by the fewest doublings."""
    return min(
        entries,
        key=lambda entry: math.hypot(_doublings(entry.num_tokens, num_tokens), _doublings(entry.length, length)),
    )


def _unlikeness(left: AttentionShape, right: AttentionShape) -> float:
    pairs = {
        "head_dim": (left.head_dim, right.head_dim),
        "group": (left.num_heads / left.num_kv_heads, right.num_heads / right.num_kv_heads),
        "num_heads": (left.num_heads, right.num_heads),
    }
    distance = sum(_WEIGHTS[name] * abs(_doublings(*pair)) for name, pair in pairs.items())
    return distance + (_OTHER_MASK if left.causal != right.causal else 0.0)


def _doublings(left: float, right: float) -> float:
    return math.log2(left / right)


def _entry(line: dict[str, Any]) -> Entry:
    shape = AttentionShape(line["num_heads"], line["num_kv_heads"], line["head_dim"], line["causal"], num_layers=1)
    tokens = line["num_tokens"]
    length = typical_length(tokens, line["num_sequences"], line["max_seqlen"])
    return Entry(shape, tokens, length, line["call_us"], line["plan_us"])
