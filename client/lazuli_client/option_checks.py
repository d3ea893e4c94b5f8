"""Checks that the options of several tasks share.

Takes a name and a value, raises `InvalidInputError` with both. Does not know what the options mean.
"""

from typing import Any

from lazuli_client.errors import InvalidInputError


def check_type(name: str, value: Any, kinds: tuple[type, ...], wanted: str) -> None:
    """Refuse a value that is of none of these kinds; None is no value."""
    if value is not None and not isinstance(value, kinds):
        raise InvalidInputError(f"{name}: must be {wanted}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among these; None is no value."""
    if value is not None and not (isinstance(value, str) and value in choices):
        raise InvalidInputError(f"{name}: must be one of {', '.join(choices)}, got {value!r}")


def check_characters(name: str, value: str | None) -> None:
    """Refuse what would not arrive: Triton ends a string parameter at a NUL, UTF-8 cannot carry a surrogate."""
    for place, character in enumerate(value or ""):
        if character == "\0":
            raise InvalidInputError(f"{name}: NUL at character {place}; the server would cut the string there")
        if "\ud800" <= character <= "\udfff":
            raise InvalidInputError(f"{name}: not valid Unicode, lone surrogate at character {place}")
