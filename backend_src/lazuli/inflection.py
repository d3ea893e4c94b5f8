"""The token count from which on an eager run is as quick as a graph.

Takes functions that time one size, returns the count. Knows nothing of CUDA. Launching a model's kernels takes about
the same time whatever their size; once the device needs longer than that for a batch, it never waits for a launch.
That holds while nobody else wants the interpreter. Under load, the threads of replies and requests do: on an H200,
BGE-M3 in batches of 16,384 tokens, for which launching is quick enough otherwise, embedded 64 clients' texts at 0.73 of
the rate of graphs. So launching has to take a small part of what the device takes.
"""

from collections.abc import Callable, Iterable

# How many times as long as launching a batch the device has to take for it.
_MARGIN = 8


def find_inflection(sizes: Iterable[int], launch_s: Callable[[int], float], replay_s: Callable[[int], float]) -> int:
    """The smallest of `sizes` at which eager is as quick, and is at all larger ones; the largest if there is none.

    Args:
        sizes: Token counts to try, the largest first; stops at the first one that a graph may run quicker.
        launch_s: Seconds that launching an eager run takes.
        replay_s: Seconds of a replay.
    """
    descending = sorted(sizes, reverse=True)
    inflection = descending[0]
    for size in descending:
        if replay_s(size) < launch_s(size) * _MARGIN:
            break
        inflection = size
    return inflection
