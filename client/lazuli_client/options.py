"""The options of one call, which travel as Triton request parameters.

Takes what the caller passed, returns the parameters to send. An option that is None is not sent, so the
model's own default holds. Does not know which prompts or dimensions the model has: the server says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from lazuli_client.errors import InvalidInputError
from lazuli_client.option_checks import check_characters, check_choice, check_type

TRUNCATIONS = ("none", "end", "start", "split")
INPUT_TYPES = ("query", "document")
# Encodings of dense vectors, of which a call can have one, and what there is beside them.
ENCODINGS = ("float32", "dense", "float16", "int8", "uint8", "binary", "ubinary")
OUTPUTS = (*ENCODINGS, "sparse", "multi")
_EXCLUSIVE = ("prompt_name", "instruction", "input_type")
MAX_DIMENSIONS = 2**31 - 1  # what the server takes


@dataclass(frozen=True)
class EmbedOptions:
    """Options of one embedding call; None means the model's default.

    Attributes:
        prompt_name: Name of a prompt of the checkpoint, put before each text.
        instruction: Free text for the model's instruction template.
        truncate: A text that is too long: `none` is an error, `end` and `start` cut there, `split` takes the mean of
            the vectors of overlapping chunks.
        dimensions: Keep this many leading dimensions.
        normalize: Whether vectors are scaled to unit length.
        input_type: `query` or `document`: the prompt that the checkpoint has for those, if it has one. Of this,
            `prompt_name` and `instruction` only one can be given.
        overlap: Tokens that a chunk has in common with the one before; only with `split`.
        output: What the answer holds, one or several of `OUTPUTS`: `int8`, for one, gives vectors of that dtype.
            `dense` is another word for `float32`.
        force_dimensions: Cut vectors of a model, too, that was not trained for it.

    Raises:
        InvalidInputError: If a value can not be right for any model.
    """

    prompt_name: str | None = None
    instruction: str | None = None
    truncate: str | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    input_type: str | None = None
    overlap: int | None = None
    output: str | Sequence[str] | None = None
    force_dimensions: bool | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in vars(self).values()):
            return
        for name in ("prompt_name", "instruction"):
            check_type(name, getattr(self, name), (str,), "a string")
            check_characters(name, getattr(self, name))
        for name in ("normalize", "force_dimensions"):
            check_type(name, getattr(self, name), (bool, np.bool_), "True or False")
        given = [name for name in _EXCLUSIVE if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidInputError(f"{' and '.join(given)}: only one of them can be given")
        check_choice("truncate", self.truncate, TRUNCATIONS)
        check_choice("input_type", self.input_type, INPUT_TYPES)
        if self.output is not None:
            _check_output(self.output)
        if self.dimensions is not None:
            _check_dimensions(self.dimensions)
        if self.overlap is not None:
            _check_overlap(self.overlap, self.truncate)

    def parameters(self) -> dict[str, str | int | bool]:
        """The request parameters, without those that are None."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        for name, plain in _PLAIN.items():  # numpy's types are not among Triton's
            if name in values:
                values[name] = plain(values[name])
        return values


def names_of(output: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (output,) if isinstance(output, str) else tuple(output)


_PLAIN: dict[str, Callable[[Any], str | int | bool]] = {
    "dimensions": int,
    "normalize": bool,
    "force_dimensions": bool,
    "overlap": int,
    "output": lambda output: ",".join(names_of(output)),
}


def _check_output(output: Any) -> None:
    if not isinstance(output, Sequence) or not output or not all(name in OUTPUTS for name in names_of(output)):
        raise InvalidInputError(f"output: must be one of {', '.join(OUTPUTS)}, or a list of several, got {output!r}")
    encodings = [name for name in names_of(output) if name in ENCODINGS]
    if len(encodings) > 1:
        raise InvalidInputError(f"output: {' and '.join(encodings)}: only one of them can be given")


def _check_dimensions(value: Any) -> None:
    # bool is an Integral too; True dimensions is a mistake.
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise InvalidInputError(f"dimensions: must be a positive integer, got {value!r}")
    if int(value) > MAX_DIMENSIONS:
        raise InvalidInputError(f"dimensions: {value}, but at most {MAX_DIMENSIONS} is possible")


def _check_overlap(value: Any, truncate: str | None) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
        raise InvalidInputError(f"overlap: must be an integer from 0 on, got {value!r}")
    if int(value) > MAX_DIMENSIONS:
        raise InvalidInputError(f"overlap: {value}, but at most {MAX_DIMENSIONS} is possible")
    if truncate != "split":
        raise InvalidInputError('overlap: only with truncate="split"')
