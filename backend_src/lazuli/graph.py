"""Which batches share a CUDA graph, and when one is captured, replayed or thrown away.

Takes batch sizes, returns buckets and actions. Knows nothing of CUDA: what it stores is opaque, so all of it is tested
without a GPU. Lazy capture on the second hit follows Perplexity's article "Fast embeddings on GPUs": the first, eager,
run also compiles kernels and warms the allocator.
"""

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

_Graph = TypeVar("_Graph")
# From here on a bucket that is a few hundred tokens too large costs little, and coarser steps mean fewer graphs.
_COARSE_FROM = 2048
_COARSE_FACTOR = 4
_LEAST_LONGEST = 16


@dataclass(frozen=True, slots=True)
class Bucket:
    """The sizes that a graph is captured for: upper bounds of a batch's own.

    Attributes:
        num_tokens: Tokens; the rest is padded.
        num_sequences: Sequences; the rest is empty.
        max_seqlen: Longest sequence.
    """

    num_tokens: int
    num_sequences: int
    max_seqlen: int


class BucketRule:
    """Rounds batch sizes up."""

    def __init__(self, *, token_step: int, max_tokens: int, max_sequences: int, max_seqlen: int) -> None:
        """Set the rule.

        Args:
            token_step: Token counts become a multiple of this, or of four times this from 2048 tokens on.
            max_tokens: Larger batches have no bucket.
            max_sequences: Largest number of sequences in any batch.
            max_seqlen: Longest sequence that the model takes.
        """
        self._token_step = token_step
        self._max_tokens = max_tokens
        self._max_sequences = max_sequences
        self._max_seqlen = max_seqlen

    def bucket(self, num_tokens: int, num_sequences: int, max_seqlen: int) -> Bucket | None:
        """The bucket of a batch, or None if it should run eagerly."""
        if num_tokens > self._max_tokens:
            return None
        step = self._token_step * (_COARSE_FACTOR if num_tokens >= _COARSE_FROM else 1)
        return Bucket(
            num_tokens=-(-num_tokens // step) * step,
            num_sequences=min(_power_of_two(num_sequences), self._max_sequences),
            max_seqlen=min(_power_of_two(max(max_seqlen, _LEAST_LONGEST)), self._max_seqlen),
        )


class Action(Enum):
    """What to do with a batch."""

    EAGER = "eager"
    CAPTURE = "capture"
    REPLAY = "replay"


@dataclass
class GraphCounters:
    """How often what happened since the start."""

    eager: int = 0
    captured: int = 0
    replayed: int = 0
    evicted: int = 0
    failed: int = 0
    padded_tokens: int = 0


class GraphCache(Generic[_Graph]):
    """Graphs by bucket; the least recently used goes when there are too many. Used by one thread."""

    def __init__(self, max_graphs: int) -> None:
        """Keep at most `max_graphs`; 0 means that everything runs eagerly."""
        self._max_graphs = max_graphs
        self._graphs: OrderedDict[Bucket, _Graph] = OrderedDict()
        self._seen: set[Bucket] = set()
        self._barred: set[Bucket] = set()
        self.counters = GraphCounters()

    def __len__(self) -> int:
        return len(self._graphs)

    def next_action(self, bucket: Bucket | None) -> Action:
        """Decide for one batch: eager at the first hit, capture at the second, replay from then on."""
        if bucket is None or self._max_graphs == 0 or bucket in self._barred:
            action = Action.EAGER
        elif bucket in self._graphs:
            action = Action.REPLAY
        else:
            action = Action.CAPTURE if bucket in self._seen else Action.EAGER
            self._seen.add(bucket)
        return action

    def get(self, bucket: Bucket) -> _Graph:
        """The graph of a bucket, which becomes the most recently used.

        Raises:
            KeyError: If there is none.
        """
        self._graphs.move_to_end(bucket)
        return self._graphs[bucket]

    def store(self, bucket: Bucket, graph: _Graph) -> None:
        """Keep a captured graph, evicting others if need be."""
        self._graphs[bucket] = graph
        self.counters.captured += 1
        while len(self._graphs) > self._max_graphs:
            self._graphs.popitem(last=False)
            self.counters.evicted += 1

    def bar(self, bucket: Bucket) -> None:
        """Never capture this bucket again: it failed, and would fail at every hit."""
        self._barred.add(bucket)
        self.counters.failed += 1


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()
