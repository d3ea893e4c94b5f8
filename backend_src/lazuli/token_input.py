"""Token ids of a request, checked before they go near the device.

Takes the `input_ids` and `attention_mask` tensors of a request, returns one array of ids per row. Knows nothing of
Triton: what it gets are numpy arrays.
"""

from dataclasses import dataclass

import numpy as np

from lazuli.errors import InputError

# So few are looked at sooner as a list: where nothing ran for a while, numpy's `max` alone takes 0.02 ms.
_FEW_IDS = 256


@dataclass(frozen=True)
class TokenLimits:
    """What a model can take.

    Attributes:
        vocab_size: Ids are from 0 to this, exclusive.
        max_positions: Most tokens of a row.
    """

    vocab_size: int
    max_positions: int


def split_rows(input_ids: np.ndarray, attention_mask: np.ndarray, limits: TokenLimits) -> list[np.ndarray]:
    """Take the real tokens of each row out of a padded rectangle.

    Args:
        input_ids: [N, S] int32.
        attention_mask: [N, S] int8; 1 for a token, 0 for padding, which may be at either side.
        limits: What the model can take.

    Returns:
        N arrays of int32, each of at least one id.

    Raises:
        InputError: If shapes differ, the mask has holes or other values, a row is empty or too long, or an id is out
            of the vocabulary. The message names field, row, value and limit.
    """
    _check_shapes(input_ids, attention_mask)
    if _is_plain(input_ids, attention_mask, limits):
        return list(input_ids)
    starts, lengths = _find_runs(attention_mask)
    if lengths.max() > limits.max_positions:
        row = int(np.argmax(lengths > limits.max_positions))
        raise InputError(f"input_ids[{row}]: {lengths[row]} tokens, but the model takes at most {limits.max_positions}")
    _check_vocabulary(input_ids, attention_mask, limits.vocab_size)
    return [
        input_ids[row, start : start + length] for row, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]


def _check_shapes(input_ids: np.ndarray, attention_mask: np.ndarray) -> None:
    if input_ids.ndim != 2:
        raise InputError(f"input_ids: the shape must be [N, S], got {list(input_ids.shape)}")
    if attention_mask.shape != input_ids.shape:
        raise InputError(
            f"attention_mask: the shape {list(attention_mask.shape)} differs from that of input_ids, "
            f"{list(input_ids.shape)}"
        )
    if input_ids.size == 0:
        raise InputError(f"input_ids: the shape {list(input_ids.shape)} holds no token")


def _is_plain(input_ids: np.ndarray, mask: np.ndarray, limits: TokenLimits) -> bool:
    """Whether there is no padding and nothing to complain about, as with every single text: two passes tell."""
    if input_ids.shape[1] > limits.max_positions or mask.tobytes().count(1) != mask.size:
        return False
    if input_ids.size <= _FEW_IDS:
        ids = input_ids.ravel().tolist()
        return bool(min(ids) >= 0 and max(ids) < limits.vocab_size)
    # Negative ids are large ones without a sign.
    return bool(input_ids.view(np.uint32).max() < limits.vocab_size)


def _find_runs(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and length of the one run of ones in each row."""
    _raise_at(mask, (mask != 0) & (mask != 1), "attention_mask", "only 0 and 1 are allowed")
    lengths = mask.sum(axis=1, dtype=np.int64)
    if not lengths.all():
        raise InputError(f"attention_mask[{int(np.argmin(lengths))}]: all zero, so there is no token to embed")
    starts = mask.argmax(axis=1)
    ends = mask.shape[1] - mask[:, ::-1].argmax(axis=1)
    holes = ends - starts != lengths
    if holes.any():
        row = int(np.argmax(holes))
        column = int(starts[row] + np.argmin(mask[row, starts[row] :]))
        raise InputError(f"attention_mask[{row}][{column}]: 0 between ones; the tokens of a row must be contiguous")
    return starts, lengths


def _check_vocabulary(input_ids: np.ndarray, mask: np.ndarray, vocab_size: int) -> None:
    outside = ((input_ids < 0) | (input_ids >= vocab_size)) & (mask == 1)
    _raise_at(input_ids, outside, "input_ids", f"the vocabulary has ids 0 to {vocab_size - 1}")


def _raise_at(values: np.ndarray, bad: np.ndarray, name: str, rule: str) -> None:
    if bad.any():
        row, column = (int(index) for index in np.argwhere(bad)[0])
        raise InputError(f"{name}[{row}][{column}]: {values[row, column]}, but {rule}")
