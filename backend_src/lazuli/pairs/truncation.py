"""How much of each of two texts is kept where both together are too long.

Takes and returns numbers of tokens. Does not know which end is cut, or what the tokens are.
"""

from collections.abc import Callable

# (tokens of the first, tokens of the second, room for both) -> (tokens kept of the first, of the second)
Truncation = Callable[[int, int, int], tuple[int, int]]


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Cut the longer text until both fit, and from then on both alike.

    What the `tokenizers` library does, and with it the cross-encoders of sentence-transformers.
    """
    short, long = min(first, second), max(first, second)
    if short + long <= room:
        return first, second
    if short <= room // 2:
        long = room - short
    else:
        short, long = room // 2, room - room // 2
    return (long, short) if first > second else (short, long)


def only_second(limit: int) -> Truncation:
    """Cut the query to three quarters of the limit, and then the document to what is left.

    Args:
        limit: Most tokens of a pair, special tokens included.
    """

    def cut(first: int, second: int, room: int) -> tuple[int, int]:
        first = min(first, limit * 3 // 4)
        return first, min(second, room - first)

    return cut
