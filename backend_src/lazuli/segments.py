"""Which of two texts a token belongs to, carried in the token's id.

A pair is one row of tokens, and models with token types tell its two segments apart. A bit of the id says which, so
that no buffer between here and the model has to know. Takes and returns numpy arrays; the model takes the bit off.
"""

from collections.abc import Sequence

import numpy as np

from lazuli.errors import InputError
from lazuli.token_input import check_values

# No vocabulary is so large, and the next bit is the sign.
SEGMENT_BIT = 30


def mark_segments(
    rows: Sequence[np.ndarray],
    input_ids: np.ndarray,
    attention_mask: np.ndarray,
    token_type_ids: np.ndarray | None,
    num_segments: int,
) -> list[np.ndarray]:
    """Mark the tokens of second segments.

    Args:
        rows: What `split_rows` made of the next two: N arrays of ids.
        input_ids: [N, S] int32.
        attention_mask: [N, S] int8.
        token_type_ids: [N, S] int8: 0 for the first segment, 1 for the second; None for nothing but the first.
        num_segments: How many the model tells apart. One that does not gets the ids as they are.

    Returns:
        N arrays of int32.

    Raises:
        InputError: If the shape differs or a type is neither 0 nor 1.
    """
    if token_type_ids is None:
        return list(rows)
    _check(token_type_ids, attention_mask)
    if num_segments < 2 or not token_type_ids.any():
        return list(rows)
    marked = input_ids | (token_type_ids.astype(np.int32) << SEGMENT_BIT)
    ends = np.cumsum([len(row) for row in rows])
    return np.split(marked[attention_mask != 0], ends[:-1])


def _check(token_type_ids: np.ndarray, attention_mask: np.ndarray) -> None:
    if token_type_ids.shape != attention_mask.shape:
        raise InputError(
            f"token_type_ids: the shape {list(token_type_ids.shape)} differs from that of attention_mask, "
            f"{list(attention_mask.shape)}"
        )
    bad = (token_type_ids != 0) & (token_type_ids != 1) & (attention_mask != 0)
    check_values(token_type_ids, bad, "token_type_ids", "only 0 and 1 are allowed, the first and the second segment")
