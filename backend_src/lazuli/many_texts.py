"""Many texts, or long ones, shared by threads; and whether that is sooner than a quicker library on one.

The quicker libraries keep the interpreter, so threads do not help them; the reference gives it up and shares texts
among threads of its own. (Those of Python would hand the interpreter to each other at every piece.) Which library is
sooner for many texts depends on the vocabulary and the cores, so it is measured at the start. Both give the same ids.
Takes encoders and texts; knows nothing of tokenizer libraries.
"""

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from lazuli.text_cuts import cut, in_groups

Encode = Callable[[Sequence[str]], list[list[int]]]
# Fewer threads have never made up for what the reference takes longer.
_LEAST_THREADS = 4
# Threads take a part of a millisecond to wake up, and cores may be busy with something else by then.
_LEAST_CHARS = 16 << 10
# Which take the reference about half a millisecond, some times as long as it takes to wake a thread.
_PIECE_CHARS = 512
# Of one call, for each thread: some milliseconds, after which the threads can turn to somebody else's texts.
_CALL_CHARS = 16 << 10
_WORTH = 0.8
# Enough to keep each thread busy for some milliseconds, at several pieces a thread.
_WORDS_PER_TEXT = 256
_TEXTS_PER_THREAD = 4
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ManyTexts:
    """What reads many texts sooner than the encoder that reads single ones.

    Attributes:
        encode: The reference; gives up the interpreter, and uses all threads.
        threads: That share the texts.
        alone: How many times as long it takes for one text as the quicker library.
        together: The same for many texts, all threads at work: less than 1.
    """

    encode: Encode
    threads: int
    alone: float
    together: float

    def pays(self, lengths: Sequence[int]) -> bool:
        """Whether texts of so many characters are worth it: one thread has the longest of them to itself."""
        total = sum(lengths)
        if total < _LEAST_CHARS:
            return False
        return max(max(lengths) * self.alone, total * self.together) < _WORTH * total


def share(
    encode: Encode, threads: int, texts: Sequence[str], boundary: re.Pattern[str] | None = None
) -> list[list[int]]:
    """The ids of texts that threads share, in their order.

    Args:
        encode: Texts to ids, on all threads.
        threads: How many there are.
        texts: The texts.
        boundary: Where they may be cut, so that one long text is shared too; see `text_cuts`.
    """
    # More pieces than threads, as one takes longer than another.
    size = max(_PIECE_CHARS, sum(map(len, texts)) // (3 * threads))
    pieces = [(row, part) for row, text in enumerate(texts) for part in cut(text, size, boundary)]
    groups = in_groups(pieces, threads * _CALL_CHARS, lambda piece: len(piece[1]))
    results = chain.from_iterable(encode([part for _, part in group]) for group in groups)
    rows: list[list[int]] = [[] for _ in texts]
    for (row, _), ids in zip(pieces, results, strict=True):
        rows[row] = rows[row] + ids if rows[row] else ids
    return rows


def measure(
    quick: Encode,
    reference: Encode,
    words: Sequence[str],
    threads: int,
    clock: Callable[[], float] = time.perf_counter,
) -> ManyTexts | None:
    """Time both on texts of these words.

    Args:
        quick: The library that reads single texts.
        reference: Equal to it.
        words: Some thousand words of the vocabulary, the most common first.
        threads: That may share the work.
        clock: Seconds.

    Returns:
        None where the reference on all threads is not quicker by a fifth.
    """
    if threads < _LEAST_THREADS or not words:
        return None
    texts = _texts(words, threads * _TEXTS_PER_THREAD)
    single = texts[:1]
    quick(texts), reference(texts)  # what is made at first use, such as threads, is not to be timed
    together = _least(lambda: share(reference, threads, texts), clock)
    quickly = _least(lambda: quick(texts), clock)
    alone = _least(lambda: reference(single), clock) / _least(lambda: quick(single), clock)
    result = ManyTexts(reference, threads, alone, together / quickly)
    return result if result.together < _WORTH else None


def _texts(words: Sequence[str], count: int) -> list[str]:
    """As languages are: a word is the rarer, the further back it stands in the vocabulary (Zipf's law)."""
    choose = random.Random(0)
    weights = [1 / rank for rank in range(10, 10 + len(words))]
    return [" ".join(choose.choices(words, weights, k=_WORDS_PER_TEXT)) for _ in range(count)]


def _least(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Seconds of the quickest of some rounds."""
    times = []
    for _ in range(_ROUNDS):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)
