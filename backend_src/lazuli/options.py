"""The options that travel with a request as Triton request parameters.

Takes the JSON text that Triton's Python backend hands over, returns a `RequestOptions`. Every model of an ensemble
sees the parameters of the whole, so each parses all of them and uses its own.
"""

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from lazuli.errors import OptionError

TRUNCATIONS = ("none", "end", "start")
INPUT_TYPES = ("query", "document")
_CHOICES = {"truncate": TRUNCATIONS, "input_type": INPUT_TYPES}
# Each says what is put before a text.
_EXCLUSIVE = ("prompt_name", "instruction", "input_type")
# Set by clients and by the server itself; not ours to judge.
_RESERVED_PREFIXES = ("triton_", "sequence_", "binary_data", "ragged_")
# Callers repeat themselves; of longer texts, which hold an instruction, no copies are kept.
_LONGEST_KEPT = 1000
_MOST_SHOWN = 80


@dataclass(frozen=True)
class RequestOptions:
    """Options of one request; None means the model's default.

    Attributes:
        prompt_name: Name of a prompt of the checkpoint, put before each text.
        instruction: Free text, put before each text by the model's instruction template.
        input_type: `query` or `document`: the prompt that the checkpoint has for those, if it has one.
        truncate: What happens to a text that is too long: `none` is an error, `end` and `start` cut there.
        dimensions: Keep this many leading dimensions (then normalise).
        normalize: Whether vectors are scaled to unit length.
    """

    prompt_name: str | None = None
    instruction: str | None = None
    truncate: str = "none"
    dimensions: int | None = None
    normalize: bool | None = None
    input_type: str | None = None

    @classmethod
    def from_json(cls, text: str) -> "RequestOptions":
        """Parse what `pb_utils.InferenceRequest.parameters()` returns.

        Raises:
            OptionError: If a parameter is unknown or its value is not usable.
        """
        return _parse_again(text) if len(text) <= _LONGEST_KEPT else _parse(text)

    def check_dimensions(self, limit: int) -> None:
        """Check `dimensions` against the vector length of the model.

        Raises:
            OptionError: If it is larger than `limit`.
        """
        if self.dimensions is not None and self.dimensions > limit:
            raise OptionError(f"dimensions: {self.dimensions}, but the model's vectors have {limit}")


def _parse(text: str) -> RequestOptions:
    values = json.loads(text) if text else {}
    known = {field.name for field in fields(RequestOptions)}
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name in known:
            chosen[name] = _CHECKS[name](name, value)
        elif not name.startswith(_RESERVED_PREFIXES):
            raise OptionError(f"unknown parameter {shorten(name)}; known: {', '.join(sorted(known))}")
    given = [name for name in _EXCLUSIVE if name in chosen]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)}: only one of them can be given")
    return RequestOptions(**chosen)


_parse_again = lru_cache(maxsize=256)(_parse)


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise OptionError(f"{name}: must be a string, got {_show(value)}")
    return value


def _check_choice(name: str, value: Any) -> str:
    choices = _CHOICES[name]
    if value not in choices:
        raise OptionError(f"{name}: must be one of {', '.join(choices)}, got {_show(value)}")
    return str(value)


def _check_dimensions(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name}: must be a positive integer, got {_show(value)}")
    return value


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name}: must be true or false, got {_show(value)}")
    return value


def _show(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def shorten(text: str) -> str:
    """A string in quotes, for an error message: gRPC drops a connection whose messages are long."""
    return _cut(repr(text))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


_CHECKS = {
    "prompt_name": _check_text,
    "instruction": _check_text,
    "truncate": _check_choice,
    "input_type": _check_choice,
    "dimensions": _check_dimensions,
    "normalize": _check_bool,
}
