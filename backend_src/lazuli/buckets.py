"""The sizes that CUDA graphs are captured for: about a hundred, which together hold every batch.

Takes the limits of batches, returns buckets. Knows nothing of CUDA.

A graph needs its number of tokens, which sets the work of all products, and upper bounds for the number of sequences
and the longest one. Those only set how many programs attention starts: one for each 128 tokens, and for each sequence
one more that may find nothing to do. Such a program costs about what a token costs, on models of 0.6 billion
parameters. So token counts are fine where batches are of few sequences, coarser where they are of many, and a batch
of nothing but very short texts goes to the next power of two.
"""

import copy
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from itertools import islice

_BLOCK = 128  # tokens that a program of attention computes
_LEAST_TOKENS = 16  # products compute no fewer rows at a time, and no finer steps
# Below it, reading the weights is what takes the time, so padding costs next to nothing.
_FINE_FROM = 128
_COARSE_STEPS = 2


@dataclass(frozen=True, slots=True)
class Bucket:
    """The sizes of a batch, or upper bounds for them.

    Attributes:
        num_tokens: Tokens; the rest is padded.
        num_sequences: Sequences; the rest is empty.
        max_seqlen: Longest sequence.
    """

    num_tokens: int
    num_sequences: int
    max_seqlen: int

    def holds(self, other: "Bucket") -> bool:
        """Whether a batch of these sizes can be padded to this bucket."""
        return (
            self.num_tokens >= other.num_tokens
            and self.num_sequences >= other.num_sequences
            and self.max_seqlen >= other.max_seqlen
        )


@dataclass(frozen=True)
class _Family:
    """Buckets of a kind.

    Attributes:
        steps: Token counts for each power of two.
        least: Smallest token count.
        sequences: Of a token count.
        longest: Of a token count.
    """

    steps: int
    least: int
    sequences: Callable[[int], int]
    longest: Callable[[int], int]


# A single text needs no search for where it lies, which is a tenth of its attention.
_FEW = _Family(8, 16, lambda tokens: tokens // 256 if tokens > 512 else 1, lambda tokens: tokens)
_MANY = _Family(4, 96, lambda tokens: tokens // 8, lambda tokens: tokens)
_ALL = _Family(1, 16, lambda tokens: tokens, lambda tokens: tokens)
_FAMILIES = (_FEW, _MANY, _ALL)
# Where attention starts programs for (sequences x longest sequence), both must be narrow at once.
_FAMILIES_BY_LONGEST = (
    _Family(4, 16, lambda tokens: tokens // 256, lambda tokens: tokens),
    _Family(4, 96, lambda tokens: tokens // 64, lambda tokens: max(tokens // 4, 256)),
    _Family(2, 96, lambda tokens: tokens // 8, lambda tokens: _BLOCK),
    _Family(1, 96, lambda tokens: tokens // 16, lambda tokens: tokens),
    _ALL,
)


class BucketTable:
    """All buckets, the cheapest first.

    Attributes:
        max_tokens: Larger batches have no bucket.
        buckets: All of them.
        coarse: A few of them that hold every batch too.
    """

    def __init__(self, *, max_tokens: int, max_sequences: int, max_seqlen: int, by_longest: bool = False) -> None:
        """Make the table.

        Args:
            max_tokens: Larger batches have no bucket.
            max_sequences: Most sequences of any batch.
            max_seqlen: Longest sequence that the model takes.
            by_longest: Whether attention starts programs for the longest sequence in place of each sequence.
        """
        self._by_longest = by_longest
        self._max_seqlen = max_seqlen
        buckets = {
            bucket
            for family in (_FAMILIES_BY_LONGEST if by_longest else _FAMILIES)
            for tokens in _ladder(family, max_tokens)
            if (bucket := _make_bucket(family, tokens, max_sequences, max_seqlen)) is not None
        }
        # Those for each power of two: whatever the batch, one of them is at most about twice as expensive.
        self._coarse_tokens = _powers(max_tokens)
        self._use(sorted(buckets, key=self._sort_key), max_tokens)

    def _use(self, buckets: Iterable[Bucket], max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.buckets = tuple(buckets)
        self.coarse = tuple(bucket for bucket in self.buckets if bucket.num_tokens in self._coarse_tokens)
        self._costs = [self.cost(bucket) for bucket in self.buckets]

    def cost(self, sizes: Bucket) -> int:
        """What a batch of exactly these sizes costs, in tokens of computing."""
        blocks = -(-sizes.max_seqlen // _BLOCK) if self._by_longest else 1
        return sizes.num_tokens + sizes.num_sequences * blocks

    def find(self, sizes: Bucket, among: Container[Bucket] | None = None) -> Bucket | None:
        """The cheapest bucket that holds a batch.

        Args:
            sizes: Of the batch.
            among: Only these; None is all.
        """
        # The cheaper ones are of fewer tokens.
        start = bisect_left(self._costs, sizes.num_tokens)
        for bucket in islice(self.buckets, start, None):
            if bucket.holds(sizes) and (among is None or bucket in among):
                return bucket
        return None

    def typical(self, num_tokens: int) -> Bucket:
        """The bucket of a batch of so many tokens in the longest sequences there can be."""
        longest = min(num_tokens, self._max_seqlen)
        bucket = self.find(Bucket(num_tokens, -(-num_tokens // longest), longest))
        assert bucket is not None, "the last buckets hold everything"
        return bucket

    def up_to(self, max_tokens: int) -> "BucketTable":
        """A table of those of these buckets that have no more tokens."""
        table = copy.copy(self)
        table._use([bucket for bucket in self.buckets if bucket.num_tokens <= max_tokens], max_tokens)
        return table

    def _sort_key(self, bucket: Bucket) -> tuple[int, int, int, int]:
        return self.cost(bucket), bucket.num_tokens, bucket.num_sequences, bucket.max_seqlen


def dummy_lengths(bucket: Bucket) -> list[int]:
    """Lengths of sequences that fill a bucket's tokens, for runs whose result nobody reads."""
    number = -(-bucket.num_tokens // bucket.max_seqlen)
    shorter, longer = divmod(bucket.num_tokens, number)
    return [shorter] * (number - longer) + [shorter + 1] * longer


def _make_bucket(family: _Family, tokens: int, max_sequences: int, max_seqlen: int) -> Bucket | None:
    """None if no batch of the family is of nearly so many tokens."""
    sequences = max(1, min(family.sequences(tokens), max_sequences, tokens))
    longest = min(family.longest(tokens), max_seqlen, tokens)
    return Bucket(tokens, sequences, longest) if sequences * longest >= tokens else None


def _ladder(family: _Family, max_tokens: int) -> list[int]:
    """Token counts up to `max_tokens`."""
    counts = _powers(max_tokens)
    for power in _powers(max_tokens):
        number = family.steps if power >= _FINE_FROM else min(family.steps, _COARSE_STEPS)
        counts |= {power + power * step // number for step in range(1, number)}
    return sorted(
        count
        for count in counts
        if (family.least <= count < max_tokens and count % _LEAST_TOKENS == 0) or count == max_tokens
    )


def _powers(max_tokens: int) -> set[int]:
    """Powers of two below `max_tokens`, and that number itself."""
    return {1 << exponent for exponent in range(4, max_tokens.bit_length()) if 1 << exponent < max_tokens} | {
        max_tokens
    }
