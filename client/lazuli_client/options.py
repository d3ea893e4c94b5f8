"""The options of one call, which travel as Triton request parameters.

Takes what the caller passed, returns the parameters to send. An option that is None is not sent, so the
model's own default holds. Does not know which prompts or dimensions the model has: the server says.
"""

from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np

from lazuli_client.errors import InvalidInputError

TRUNCATIONS = ("none", "end", "start")
INPUT_TYPES = ("query", "document")
_EXCLUSIVE = ("prompt_name", "instruction", "input_type")
MAX_DIMENSIONS = 2**31 - 1  # what the server takes


@dataclass(frozen=True)
class EmbedOptions:
    """Options of one embedding call; None means the model's default.

    Attributes:
        prompt_name: Name of a prompt of the checkpoint, put before each text.
        instruction: Free text for the model's instruction template.
        truncate: A text that is too long: `none` is an error, `end` and `start` cut there.
        dimensions: Keep this many leading dimensions.
        normalize: Whether vectors are scaled to unit length.
        input_type: `query` or `document`: the prompt that the checkpoint has for those, if it has one. Of this,
            `prompt_name` and `instruction` only one can be given.

    Raises:
        InvalidInputError: If a value can not be right for any model.
    """

    prompt_name: str | None = None
    instruction: str | None = None
    truncate: str | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    input_type: str | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_name", "instruction"):
            _check(name, getattr(self, name), (str,), "a string")
            _check_characters(name, getattr(self, name))
        _check("normalize", self.normalize, (bool, np.bool_), "True or False")
        given = [name for name in _EXCLUSIVE if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidInputError(f"{' and '.join(given)}: only one of them can be given")
        _check_choice("truncate", self.truncate, TRUNCATIONS)
        _check_choice("input_type", self.input_type, INPUT_TYPES)
        if self.dimensions is not None:
            _check_dimensions(self.dimensions)

    def parameters(self) -> dict[str, str | int | bool]:
        """The request parameters, without those that are None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.dimensions is not None:
            values["dimensions"] = int(self.dimensions)  # numpy's types are not among Triton's
        if self.normalize is not None:
            values["normalize"] = bool(self.normalize)
        return {name: value for name, value in values.items() if value is not None}


def _check(name: str, value: Any, kinds: tuple[type, ...], wanted: str) -> None:
    if value is not None and not isinstance(value, kinds):
        raise InvalidInputError(f"{name}: must be {wanted}, got {value!r}")


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise InvalidInputError(f"{name}: must be one of {', '.join(choices)}, got {value!r}")


def _check_characters(name: str, value: str | None) -> None:
    """Refuse what would not arrive: Triton ends a string parameter at a NUL, UTF-8 cannot carry a surrogate."""
    for place, character in enumerate(value or ""):
        if character == "\0":
            raise InvalidInputError(f"{name}: NUL at character {place}; the server would cut the string there")
        if "\ud800" <= character <= "\udfff":
            raise InvalidInputError(f"{name}: not valid Unicode, lone surrogate at character {place}")


def _check_dimensions(value: Any) -> None:
    # bool is an Integral too; True dimensions is a mistake.
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise InvalidInputError(f"dimensions: must be a positive integer, got {value!r}")
    if int(value) > MAX_DIMENSIONS:
        raise InvalidInputError(f"dimensions: {value}, but at most {MAX_DIMENSIONS} is possible")
