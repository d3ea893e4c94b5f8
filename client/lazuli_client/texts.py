"""Checks texts and token lists before they go on the wire.

Takes what the caller passed, returns plain lists or raises `InvalidInputError` naming the row. Does not know
the limits of the model: the server checks those.
"""

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazuli_client.errors import InputTypeError, InvalidInputError

Texts = str | Sequence[str] | NDArray[Any]
TokenLists = Sequence[Sequence[int]] | Sequence[NDArray[Any]] | NDArray[Any]
_INT32 = np.iinfo(np.int32)


def as_texts(texts: Texts, first_row: int = 0, name: str = "text") -> list[str]:
    """The texts as a list; a single string is a list of one.

    Args:
        texts: A string, a sequence of strings, or a 1-d numpy array of strings.
        first_row: Row number of the first text, for messages.
        name: What messages call it.

    Raises:
        InvalidInputError: If there is no text, or an item is not a string or not encodable as UTF-8.
        InputTypeError: If it is no sequence, or one without an order.
    """
    if isinstance(texts, str):
        texts = [texts]
    if isinstance(texts, np.ndarray):
        if texts.ndim != 1:
            raise InvalidInputError(f"{name}: an array must have 1 dimension, got shape {list(texts.shape)}")
        texts = texts.tolist()
    _check_ordered(name, texts, "a string or a sequence of strings")
    checked = [as_text(text, row, name) for row, text in enumerate(texts, first_row)]
    if not checked:
        raise InvalidInputError(f"{name}: there is no text; at least 1 is needed")
    return checked


def as_text(text: Any, row: int, name: str = "text") -> str:
    """One text, checked.

    Raises:
        InvalidInputError: If it is not a string, or holds a lone surrogate, which UTF-8 cannot carry.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"{name}[{row}]: must be a string, got {type(text).__name__}", row=row)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{name}[{row}]: not valid Unicode, lone surrogate at character {error.start}"
        raise InvalidInputError(message, row=row) from None
    return str(text)


def as_token_lists(input_ids: TokenLists) -> list[NDArray[np.int32]]:
    """The token lists as int32 arrays, one a row.

    Raises:
        InvalidInputError: If there is no row, or a row is empty, not 1-d, not integers or beyond int32.
    """
    _check_ordered("input_ids", input_ids, "a sequence of token lists")
    rows = [_as_tokens(tokens, row) for row, tokens in enumerate(input_ids)]
    if not rows:
        raise InvalidInputError("input_ids: there is no row; at least 1 is needed")
    return rows


def check_stream(texts: Any, *, may_be_async: bool = False) -> None:
    """Refuse what `embed_iter` cannot read as a stream of texts.

    Raises:
        InputTypeError: If it is one string, not iterable, or has no order.
    """
    if isinstance(texts, str):
        raise InputTypeError("text: embed_iter takes an iterable of strings, not one string")
    if not (may_be_async and isinstance(texts, AsyncIterable)):
        _check_ordered("text", texts, "an iterable of strings")


def _check_ordered(name: str, given: Any, wanted: str) -> None:
    # Callers without a type checker pass anything.
    if isinstance(given, (Set, Mapping)):
        kind = type(given).__name__
        raise InputTypeError(f"{name}: an ordered sequence is needed, for answers come by row; got {kind}")
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InputTypeError(f"{name}: must be {wanted}, got {type(given).__name__}")


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
        problem = f"an id does not fit into 32 bits: {ids[(ids < _INT32.min) | (ids > _INT32.max)][0]}"
    if problem:
        raise InvalidInputError(f"input_ids[{row}]: {problem}", row=row)
    return ids.astype(np.int32)
