"""Typed values out of the string parameters of a `config.pbtxt`.

Takes a mapping of strings and a frozen dataclass, and returns an instance of it. A value may hold
`${NAME}` or `${NAME:-default}`, replaced from the environment as a shell would do. Knows nothing of what the
parameters mean.
"""

import dataclasses
import os
import re
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from lazuli.errors import ConfigError

# Parameters that Triton's Python backend reads for itself.
TRITON_PARAMETERS = frozenset({"EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "shm-region-prefix-name"})
AUTO = "auto"

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_Config = TypeVar("_Config")


def expand(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Replace `${NAME}` and `${NAME:-default}`; an empty variable counts as unset, as in a shell's `:-`.

    Raises:
        ConfigError: If a variable without a default is not set.
    """
    source = os.environ if environ is None else environ

    def value_of(match: re.Match[str]) -> str:
        value = source.get(match["name"])
        if value:
            return _as_utf8(match["name"], value)
        if match["default"] is None:
            raise ConfigError(f"{text!r}: the environment variable {match['name']} is not set")
        return match["default"]

    return _VARIABLE.sub(value_of, text)


def _as_utf8(name: str, value: str) -> str:
    """Read a variable as UTF-8: the Python inside Triton's stub reads the environment as ASCII, whatever the locale."""
    try:
        return os.fsencode(value).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"the environment variable {name} is not valid UTF-8") from None


def parse(cls: type[_Config], parameters: Mapping[str, str], environ: Mapping[str, str] | None = None) -> _Config:
    """Build the dataclass `cls` from string parameters.

    Fields are of type `int`, `float`, `bool`, `str`, or one of these `| None`; the string `auto` gives None there.

    Args:
        cls: A dataclass whose field names are the parameter names.
        parameters: Parameter name to string value.
        environ: Replaces `os.environ` for `${NAME}`.

    Raises:
        ConfigError: If a key is unknown, or a value does not parse.
    """
    hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, text in parameters.items():
        if key in TRITON_PARAMETERS:
            continue
        if key not in known:
            raise ConfigError(f"unknown parameter {key!r}; known: {', '.join(sorted(known))}")
        values[key] = _convert(key, _expand(key, text, environ), hints[key])
    return cls(**values)


def _expand(key: str, text: str, environ: Mapping[str, str] | None) -> str:
    try:
        return expand(text, environ)
    except ConfigError as error:
        raise ConfigError(f"parameter {key!r}: {error}") from None


def _convert(key: str, text: str, hint: Any) -> Any:
    options = typing.get_args(hint)
    kind = next(option for option in options if option is not type(None)) if options else hint
    if type(None) in options and text.strip() == AUTO:
        return None
    try:
        # A string keeps the blanks at its ends: a template may need them.
        return text if kind is str else _READERS[kind](text.strip())
    except ValueError:
        raise ConfigError(f"parameter {key!r}: {text!r} is not a valid {kind.__name__}") from None


def _read_bool(text: str) -> bool:
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


_READERS: dict[Any, Any] = {int: int, float: float, bool: _read_bool}
