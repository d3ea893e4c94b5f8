"""The options that travel with a request as Triton request parameters.

Takes the JSON text that Triton's Python backend hands over, returns the options of a task. Every model of an ensemble
sees the parameters of the whole, so each parses all of them and uses its own.
"""

import json
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Self, cast

from lazuli.errors import OptionError
from lazuli.request import WORKLOADS
from lazuli.tracing.context import HINT, is_context, without_context

TRUNCATIONS = ("none", "end", "start", "split")
INPUT_TYPES = ("query", "document")
# Encodings of dense vectors; a request can have one of them.
ENCODINGS = ("float32", "float16", "int8", "uint8", "binary", "ubinary")
OUTPUTS = (*ENCODINGS, "sparse", "multi")
_ALIASES = {"dense": "float32"}
ACTIVATIONS = ("sigmoid", "none")
HYBRID = "hybrid"
METHODS = ("dense", "sparse", "multi", HYBRID)
_CHOICES = {
    "truncate": TRUNCATIONS,
    "input_type": INPUT_TYPES,
    "activation": ACTIVATIONS,
    "method": METHODS,
    "workload": WORKLOADS,
}
# Each says what is put before a text.
_EXCLUSIVE = ("prompt_name", "instruction", "input_type")
# Set by clients and by the server itself; not ours to judge.
_RESERVED_PREFIXES = ("triton_", "sequence_", "binary_data", "ragged_")
# Callers repeat themselves; of longer texts, which hold an instruction, no copies are kept.
_LONGEST_KEPT = 1000
_MOST_SHOWN = 80


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the options of a task: dataclasses whose fields are the parameters that it knows.

    Attributes:
        workload: `query` goes before `bulk`; None: the engine tells by the number of tokens.
        deadline_ms: So long after the tokens reached the engine, what is left is not computed any more.
    """

    workload: str | None = None
    deadline_ms: int | None = None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse what `pb_utils.InferenceRequest.parameters()` returns.

        Raises:
            OptionError: If a parameter is unknown or its value is not usable.
        """
        kind: Any = cls
        if HINT in text:
            text = without_context(text)
        return cast(Self, _parse_again(kind, text) if len(text) <= _LONGEST_KEPT else _parse(kind, text))

    def within(self, timeout_ms: int | None) -> Self:
        """The options with a deadline that is no later than a timeout; None for no timeout."""
        if timeout_ms is None or (self.deadline_ms is not None and self.deadline_ms <= timeout_ms):
            return self
        return replace(self, deadline_ms=timeout_ms)


@dataclass(frozen=True)
class RequestOptions(Options):
    """Options of one request for vectors; None means the model's default.

    Attributes:
        prompt_name: Name of a prompt of the checkpoint, put before each text.
        instruction: Free text, put before each text by the model's instruction template.
        input_type: `query` or `document`: the prompt that the checkpoint has for those, if it has one.
        truncate: What happens to a text that is too long: `none` is an error, `end` and `start` cut there, `split`
            takes the mean of the vectors of overlapping chunks.
        overlap: Tokens that a chunk has in common with the one before; only with `split`.
        dimensions: Keep this many leading dimensions (then normalise).
        normalize: Whether vectors are scaled to unit length.
        output: What the answer holds, of `OUTPUTS`; at most one encoding of dense vectors. Empty: what the model has.
        force_dimensions: Cut vectors of a model, too, that was not trained for it.
    """

    prompt_name: str | None = None
    instruction: str | None = None
    truncate: str = "none"
    dimensions: int | None = None
    normalize: bool | None = None
    input_type: str | None = None
    output: tuple[str, ...] = ()
    force_dimensions: bool = False
    overlap: int | None = None

    def __post_init__(self) -> None:
        if self.overlap is not None and self.truncate != "split":
            raise OptionError('overlap: only with truncate="split"')
        refuse_split_of_tokens(self.truncate, self.output)

    @property
    def encoding(self) -> str | None:
        """The encoding of dense vectors, or None if there are to be none."""
        return next((name for name in self.output if name in ENCODINGS), None)

    def check_dimensions(self, limit: int) -> None:
        """Check `dimensions` against the vector length of the model.

        Raises:
            OptionError: If it is larger than `limit`.
        """
        if self.dimensions is not None and self.dimensions > limit:
            raise OptionError(f"dimensions: {self.dimensions}, but the model's vectors have {limit}")


def _parse(kind: type[Any], text: str) -> Any:
    values = json.loads(text) if text else {}
    known = {field.name for field in fields(kind)}
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name in known:
            chosen[name] = _CHECKS[name](name, value)
        elif not (name.startswith(_RESERVED_PREFIXES) or is_context(name)):
            raise OptionError(f"unknown parameter {shorten(name)}; known: {', '.join(sorted(known))}")
    given = [name for name in _EXCLUSIVE if name in chosen]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)}: only one of them can be given")
    return kind(**chosen)


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


def _check_positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name}: must be a positive integer, got {_show(value)}")
    return value


def _check_overlap(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise OptionError(f"{name}: must be an integer from 0 on, got {_show(value)}")
    return value


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name}: must be true or false, got {_show(value)}")
    return value


def _check_output(name: str, value: Any) -> tuple[str, ...]:
    """The outputs of a list with commas."""
    names = [part.strip() for part in _check_text(name, value).split(",")]
    chosen = tuple(dict.fromkeys(_ALIASES.get(part, part) for part in names))
    if not set(chosen) <= set(OUTPUTS):
        known = ", ".join((*_ALIASES, *OUTPUTS))
        raise OptionError(f"{name}: must be one of {known}, or several with commas between, got {_show(value)}")
    encodings = [part for part in chosen if part in ENCODINGS]
    if len(encodings) > 1:
        raise OptionError(f"{name}: {' and '.join(encodings)}: only one of them can be given")
    return chosen


def _show(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def refuse_split(truncate: str) -> None:
    """Refuse what only vectors can be asked for.

    Raises:
        OptionError: If texts are to be split.
    """
    if truncate == "split":
        raise OptionError('truncate: "split" is for vectors only; this model takes none, end and start')


def refuse_split_of_tokens(truncate: str, outputs: tuple[str, ...]) -> None:
    """Refuse to split texts for anything but dense vectors, which alone have a mean.

    Args:
        truncate: What is to become of texts that are too long.
        outputs: What is asked for, or what the model gives where nothing is.

    Raises:
        OptionError: If texts are to be split.
    """
    if truncate == "split" and not set(outputs) <= set(ENCODINGS):
        raise OptionError(f'truncate: "split" is for dense vectors only; output is {",".join(outputs)}')


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
    "dimensions": _check_positive,
    "normalize": _check_bool,
    "output": _check_output,
    "force_dimensions": _check_bool,
    "overlap": _check_overlap,
    "activation": _check_choice,
    "method": _check_choice,
    "weights": _check_text,
    "labels": _check_bool,
    "workload": _check_choice,
    "deadline_ms": _check_positive,
}
