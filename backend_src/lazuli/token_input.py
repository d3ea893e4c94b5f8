"""Token ids of a request, checked before they go near the device.

Takes the `input_ids` and `attention_mask` tensors of a request, returns one array of ids per row. Knows nothing of
Triton: what it gets are numpy arrays.
"""

from dataclasses import dataclass

import numpy as np

from lazuli.errors import InputError
from lazuli.splitting.chunks import CHUNK_MARK

# So few are looked at sooner as a list: where nothing ran for a while, numpy's `max` alone takes 0.02 ms.
_FEW_IDS = 256
_MARK_BYTE = bytes([CHUNK_MARK])


@dataclass(frozen=True)
class TokenLimits:
    """What a model can take.

    Attributes:
        vocab_size: Ids are from 0 to this, exclusive.
        max_positions: Most tokens of a row.
    """

    vocab_size: int
    max_positions: int


@dataclass(frozen=True, slots=True)
class ChunkedRows:
    """The tokens of N rows, some of which are texts cut into chunks.

    Attributes:
        rows: N arrays of int32: all tokens of each row, one chunk behind the other.
        starts: For each row, where its further chunks begin; None if all rows are one chunk each.
    """

    rows: list[np.ndarray]
    starts: list[np.ndarray] | None = None


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
    check_values(
        attention_mask, (attention_mask != 0) & (attention_mask != 1), "attention_mask", "only 0 and 1 are allowed"
    )
    rows = take_runs(input_ids, attention_mask, limits.vocab_size)
    for row, ids in enumerate(rows):
        if len(ids) > limits.max_positions:
            raise InputError(f"input_ids[{row}]: {len(ids)} tokens, but the model takes at most {limits.max_positions}")
    return rows


def split_chunks(input_ids: np.ndarray, attention_mask: np.ndarray, limits: TokenLimits) -> ChunkedRows:
    """The same for rows that may be cut into chunks, each of which is a sequence for the model.

    Args:
        input_ids: [N, S] int32.
        attention_mask: [N, S] int8; as for `split_rows`, and 2 for the first token of each further chunk of a row.
        limits: What the model can take; a row may have more tokens than that, a chunk may not.

    Raises:
        InputError: As `split_rows` does, or a chunk is empty.
    """
    if _MARK_BYTE not in attention_mask.tobytes():  # sooner than to compare
        return ChunkedRows(split_rows(input_ids, attention_mask, limits))
    _check_shapes(input_ids, attention_mask)
    outside = (attention_mask < 0) | (attention_mask > CHUNK_MARK)
    check_values(attention_mask, outside, "attention_mask", f"only 0, 1 and {CHUNK_MARK} are allowed")
    rows = take_runs(input_ids, attention_mask, limits.vocab_size)
    starts = []
    for row, (ids, mask) in enumerate(zip(rows, attention_mask, strict=True)):
        marks = np.flatnonzero(mask[mask != 0] == CHUNK_MARK)
        lengths = np.diff([0, *marks, len(ids)])
        if not lengths[0]:
            raise InputError(
                f"attention_mask[{row}]: {CHUNK_MARK} at its first token, but that begins no further chunk"
            )
        if lengths.max() > limits.max_positions:
            raise InputError(
                f"input_ids[{row}]: a chunk of {lengths.max()} tokens, but the model takes at most "
                f"{limits.max_positions}"
            )
        starts.append(marks)
    return ChunkedRows(rows, starts)


def take_runs(input_ids: np.ndarray, attention_mask: np.ndarray, vocab_size: int) -> list[np.ndarray]:
    """The tokens of each row, where the mask is not 0.

    Raises:
        InputError: If shapes differ, a row has no token or several runs of them, or an id is out of the vocabulary.
    """
    _check_shapes(input_ids, attention_mask)
    present = attention_mask != 0
    starts, lengths = _find_runs(present)
    _check_vocabulary(input_ids, present, vocab_size)
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
    """Start and length of the one run of tokens in each row of a mask of bool."""
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
    outside = ((input_ids < 0) | (input_ids >= vocab_size)) & mask
    check_values(input_ids, outside, "input_ids", f"the vocabulary has ids 0 to {vocab_size - 1}")


def check_values(values: np.ndarray, bad: np.ndarray, name: str, rule: str) -> None:
    """Refuse values.

    Raises:
        InputError: If some are bad; names the first one with its row and the rule that it breaks.
    """
    if bad.any():
        row, column = (int(index) for index in np.argwhere(bad)[0])
        raise InputError(f"{name}[{row}][{column}]: {values[row, column]}, but {rule}")
