"""Token ids of pairs whose texts are read each by itself, checked before they go near the device.

Takes the tensors of a request, returns rows with the lengths of their two texts. Knows nothing of Triton.
"""

import numpy as np

from lazuli.errors import InputError
from lazuli.token_input import TokenLimits, check_values, take_runs

_TEXTS = ("query", "document")


def split_pairs(
    input_ids: np.ndarray, attention_mask: np.ndarray, token_type_ids: np.ndarray | None, limits: TokenLimits
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Take the tokens of each pair out of a padded rectangle.

    Args:
        input_ids: [N, S] int32: in each row those of the query, with its special tokens, then those of the document.
        attention_mask: [N, S] int8; 1 for a token, 0 for padding, which may be at either side.
        token_type_ids: [N, S] int8; 0 for a token of the query, 1 for one of the document.
        limits: What the model can take, of each text.

    Returns:
        N arrays of ids, and N arrays of how many of them are the query's and the document's.

    Raises:
        InputError: If shapes differ, a value is not one of those, a text is empty or too long, or an id is out of the
            vocabulary. The message names field, row, value and limit.
    """
    if token_type_ids is None:
        raise InputError("token_type_ids: missing; this model reads query and document each by itself")
    if token_type_ids.shape != attention_mask.shape:
        raise InputError(
            f"token_type_ids: the shape {list(token_type_ids.shape)} differs from that of attention_mask, "
            f"{list(attention_mask.shape)}"
        )
    outside = (attention_mask != 0) & (attention_mask != 1)
    check_values(attention_mask, outside, "attention_mask", "only 0 and 1 are allowed")
    rows = take_runs(input_ids, attention_mask, limits.vocab_size)
    spans = []
    for row, ids in enumerate(rows):
        segments = token_type_ids[row][attention_mask[row] == 1]
        second = int(np.count_nonzero(segments == 1))
        lengths = np.array([len(ids) - second, second], dtype=np.int32)
        if not (segments[: lengths[0]] == 0).all():
            raise InputError(f"token_type_ids[{row}]: must be 0 for the query, which is first, and 1 for the document")
        _check_lengths(lengths, row, limits)
        spans.append(lengths)
    return rows, spans


def _check_lengths(lengths: np.ndarray, row: int, limits: TokenLimits) -> None:
    for text, length in zip(_TEXTS, lengths.tolist(), strict=True):
        if not length:
            raise InputError(f"token_type_ids[{row}]: no token belongs to the {text}")
        if length > limits.max_positions:
            raise InputError(
                f"input_ids[{row}]: {length} tokens of the {text}, but the model takes at most {limits.max_positions}"
            )
