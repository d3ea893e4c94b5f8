"""The token count from which on an eager run is as quick as a graph.

Takes functions that time one size, returns the count. Knows nothing of CUDA. Launching a model's kernels takes about
the same time whatever their size; once the device needs longer than that for a batch, it never waits for a launch.
"""

from collections.abc import Callable, Iterable

# Eager is as quick if it takes at most so many times a replay.
_TOLERANCE = 1.03


def find_inflection(sizes: Iterable[int], eager_s: Callable[[int], float], replay_s: Callable[[int], float]) -> int:
    """The smallest of `sizes` at which eager is as quick, and is at all larger ones; the largest if there is none.

    Args:
        sizes: Token counts to try, the largest first; stops at the first one that a graph runs quicker.
        eager_s: Seconds of one of many eager runs behind each other.
        replay_s: Seconds of a replay.
    """
    descending = sorted(sizes, reverse=True)
    inflection = descending[0]
    for size in descending:
        if eager_s(size) > replay_s(size) * _TOLERANCE:
            break
        inflection = size
    return inflection
