"""Checks texts and token lists before they go on the wire.

Takes what the caller passed, returns plain lists or raises `InvalidInputError` naming the row. Does not know
the limits of the model: the server checks those.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazuli_client.errors import InvalidInputError

Texts = str | Sequence[str] | NDArray[Any]
TokenLists = Sequence[Sequence[int]] | Sequence[NDArray[Any]] | NDArray[Any]
_INT32 = np.iinfo(np.int32)


def as_texts(texts: Texts, first_row: int = 0) -> list[str]:
    """The texts as a list; a single string is a list of one.

    Args:
        texts: A string, a sequence of strings, or a 1-d numpy array of strings.
        first_row: Row number of the first text, for messages.

    Raises:
        InvalidInputError: If there is no text, or an item is not a string or not encodable as UTF-8.
    """
    if isinstance(texts, str):
        texts = [texts]
    if isinstance(texts, np.ndarray):
        if texts.ndim != 1:
            raise InvalidInputError(f"text: an array must have 1 dimension, got shape {list(texts.shape)}")
        texts = texts.tolist()
    given: Any = texts  # callers without a type checker pass anything
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InvalidInputError(f"text: must be a string or a sequence of strings, got {type(given).__name__}")
    checked = [as_text(text, row) for row, text in enumerate(given, first_row)]
    if not checked:
        raise InvalidInputError("text: there is no text; at least 1 is needed")
    return checked


def as_text(text: Any, row: int) -> str:
    """One text, checked.

    Raises:
        InvalidInputError: If it is not a string, or holds a lone surrogate, which UTF-8 cannot carry.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"text[{row}]: must be a string, got {type(text).__name__}", row=row)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"text[{row}]: not valid Unicode, lone surrogate at character {error.start}"
        raise InvalidInputError(message, row=row) from None
    return str(text)


def as_token_lists(input_ids: TokenLists) -> list[NDArray[np.int32]]:
    """The token lists as int32 arrays, one a row.

    Raises:
        InvalidInputError: If there is no row, or a row is empty, not 1-d, not integers or beyond int32.
    """
    rows = [_as_tokens(tokens, row) for row, tokens in enumerate(input_ids)]
    if not rows:
        raise InvalidInputError("input_ids: there is no row; at least 1 is needed")
    return rows


def _as_tokens(tokens: Any, row: int) -> NDArray[np.int32]:
    problem = None
    try:
        ids = np.asarray(tokens)
    except ValueError:  # ragged inside a row
        raise InvalidInputError(f"input_ids[{row}]: must be a flat list of integers", row=row) from None
    if ids.ndim != 1:
        problem = f"must be a flat list of integers, got shape {list(ids.shape)}"
    elif ids.size == 0:
        problem = "there is no token; at least 1 is needed"
    elif not np.issubdtype(ids.dtype, np.integer):
        problem = f"must hold integers, got {ids.dtype}"
    elif ids.min() < _INT32.min or ids.max() > _INT32.max:
        problem = f"an id does not fit into 32 bits: {ids.min()} to {ids.max()}"
    if problem:
        raise InvalidInputError(f"input_ids[{row}]: {problem}", row=row)
    return ids.astype(np.int32)
