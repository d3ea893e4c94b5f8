"""Which batch runs eagerly, in its own CUDA graph or in another's, and which graph is captured or thrown away next.

Takes sizes of batches, returns actions. Knows nothing of CUDA: what it stores is opaque, so all of it is tested
without a GPU. Capturing a graph only once its bucket was asked for follows Perplexity's article "Fast embeddings on
GPUs"; that a larger graph stands in meanwhile, and that captures wait for a gap, does not.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from lazuli.buckets import Bucket, BucketTable

_Graph = TypeVar("_Graph")
# A larger graph stands in as long as it costs no more than this many times the bucket's own, or this many tokens.
_STAND_IN_FACTOR = 4
_STAND_IN_TOKENS = 1024


class Action(Enum):
    """What to do with a batch."""

    EAGER = "eager"
    CAPTURE = "capture"
    REPLAY = "replay"


@dataclass
class GraphCounters:
    """How often what happened since the start.

    Attributes:
        replayed: Batches run by the graph of their bucket.
        stood_in: Batches run by the graph of a larger bucket, as there was none of their own yet.
        missed: Batches run eagerly, as there was no graph yet.
        above: Batches run eagerly, as they are of more tokens than graphs are made for.
        captured: Graphs captured, before the start's end or later.
        capture_s: Seconds that took.
        evicted: Graphs thrown away to make room.
        failed: Buckets that could not be captured, or never fit the memory.
        real_tokens: Tokens of all batches.
        padded_tokens: Tokens computed beyond those.
        graphs: Graphs there are now.
        graph_bytes: Device memory of their pool and of themselves.
    """

    replayed: int = 0
    stood_in: int = 0
    missed: int = 0
    above: int = 0
    captured: int = 0
    capture_s: float = 0.0
    evicted: int = 0
    failed: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    graphs: int = 0
    graph_bytes: int = 0


class GraphCache(Generic[_Graph]):
    """Graphs by bucket; the least recently used goes when there are too many. Used by one thread."""

    def __init__(self, table: BucketTable, *, capture: str, max_graphs: int, max_bytes: int) -> None:
        """Make an empty cache.

        Args:
            table: The buckets.
            capture: `idle`: a bucket that was asked for waits until somebody captures it, and a larger graph stands in;
                `lazy`: it is captured when it is asked for again; `off`: everything runs eagerly.
            max_graphs: Most graphs kept.
            max_bytes: Most memory of all of them.
        """
        self.table = table
        self.counters = GraphCounters()
        self.hits: Counter[Bucket] = Counter()
        self.waits_for_idle = capture == "idle"
        self._capture = capture
        self._max_graphs = max_graphs
        self._max_bytes = max_bytes
        self._graphs: OrderedDict[Bucket, tuple[_Graph, int]] = OrderedDict()
        self._waiting: Counter[Bucket] = Counter()
        self._barred: set[Bucket] = set()

    def __len__(self) -> int:
        return len(self._graphs)

    def __contains__(self, bucket: Bucket) -> bool:
        return bucket in self._graphs

    def choose(self, sizes: Bucket) -> tuple[Action, Bucket]:
        """Decide for one batch and count it; returns what to do and the sizes to pad to."""
        bucket = self.table.find(sizes) if self._capture != "off" else None
        self.counters.real_tokens += sizes.num_tokens
        if bucket is None:
            self.counters.above += 1
            return Action.EAGER, sizes
        self.hits[bucket] += 1
        action, chosen = self._choose_graph(sizes, bucket)
        self.counters.padded_tokens += chosen.num_tokens - sizes.num_tokens
        return action, chosen

    def _choose_graph(self, sizes: Bucket, bucket: Bucket) -> tuple[Action, Bucket]:
        if bucket in self._graphs:
            self.count(Action.REPLAY)
            return Action.REPLAY, bucket
        self.ask_for(bucket)
        if self._capture == "lazy" and self._waiting[bucket] > 1:
            return Action.CAPTURE, bucket
        other = self.table.find(sizes, self._graphs) if self.waits_for_idle else None
        if other is not None and self._may_stand_in(other, bucket):
            self.counters.stood_in += 1
            return Action.REPLAY, other
        self.count(Action.EAGER)
        return Action.EAGER, bucket

    def count(self, action: Action) -> None:
        """Count a batch that was run in this way; the caller does so only after an `Action.CAPTURE`."""
        if action is Action.REPLAY:
            self.counters.replayed += 1
        else:
            self.counters.missed += 1

    def _may_stand_in(self, other: Bucket, bucket: Bucket) -> bool:
        cost = self.table.cost(other)
        return cost <= max(_STAND_IN_FACTOR * self.table.cost(bucket), _STAND_IN_TOKENS)

    def next_waiting(self, least: int = 1) -> Bucket | None:
        """The bucket without a graph that was asked for most often, and at least so often; or None."""
        if not self._waiting:
            return None
        bucket, count = max(self._waiting.items(), key=lambda item: item[1])
        return bucket if count >= least else None

    def ask_for(self, bucket: Bucket, times: int = 1) -> None:
        """Let a bucket wait for its capture, as if batches had asked for it."""
        if bucket not in self._graphs and bucket not in self._barred:
            self._waiting[bucket] += times

    def limit(self, max_tokens: int) -> None:
        """Have no graphs for more tokens from now on. Those that there are, are given up."""
        self.table = self.table.up_to(max_tokens)
        self._graphs.clear()
        self.counters.graph_bytes = 0
        self._waiting = Counter({bucket: n for bucket, n in self._waiting.items() if bucket.num_tokens <= max_tokens})

    def get(self, bucket: Bucket) -> _Graph:
        """The graph of a bucket, which becomes the most recently used.

        Raises:
            KeyError: If there is none.
        """
        self._graphs.move_to_end(bucket)
        return self._graphs[bucket][0]

    @property
    def is_full(self) -> bool:
        """Whether another graph would throw one away, by number."""
        return len(self) >= self._max_graphs

    def fits(self, pool_bytes: int) -> bool:
        """Whether a pool of so many bytes leaves any room for graphs."""
        return pool_bytes < self._max_bytes

    def store(self, bucket: Bucket, graph: _Graph, own_bytes: int, pool_bytes: int) -> None:
        """Keep a captured graph, throwing others away if need be; all of them if the pool itself grew too large.

        Args:
            bucket: Its bucket.
            graph: The graph.
            own_bytes: What it alone takes, and gives back.
            pool_bytes: What all graphs share; it stays as long as there is one.
        """
        self._waiting.pop(bucket, None)
        self.counters.captured += 1
        if pool_bytes + own_bytes > self._max_bytes:
            self.bar(bucket)
            self._start_over()
            return
        self._graphs[bucket] = graph, own_bytes
        while self._graphs and (len(self) > self._max_graphs or self._num_bytes(pool_bytes) > self._max_bytes):
            self._graphs.popitem(last=False)
            self.counters.evicted += 1
        self.counters.graph_bytes = self._num_bytes(pool_bytes)

    def _start_over(self) -> None:
        """Give up all graphs, as their pool gives nothing back while there is one; they wait to be captured again."""
        given_up = list(self._graphs)
        self._graphs.clear()
        self.counters.evicted += len(given_up)
        self.counters.graph_bytes = 0
        for bucket in given_up:
            self.ask_for(bucket)

    def bar(self, bucket: Bucket) -> None:
        """Never capture this bucket again: it failed, and would fail at every hit."""
        self._waiting.pop(bucket, None)
        self._barred.add(bucket)
        self.counters.failed += 1

    def snapshot(self) -> GraphCounters:
        """The counters as they are now."""
        return replace(self.counters, graphs=len(self))

    def _num_bytes(self, pool_bytes: int) -> int:
        return pool_bytes + sum(own_bytes for _, own_bytes in self._graphs.values())
