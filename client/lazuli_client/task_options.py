"""The options of calls that ask for scores or labels, which travel as Triton request parameters.

Takes what the caller passed, returns the parameters to send, as `options.py` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real

from lazuli_client.errors import InvalidInputError
from lazuli_client.option_checks import check_characters, check_choice, check_type

TRUNCATIONS = ("none", "end", "start")
ACTIVATIONS = ("sigmoid", "none")
METHODS = ("dense", "sparse", "multi", "hybrid")
INPUT_TYPES = ("query", "document")
Parameters = dict[str, str | int | bool]


@dataclass(frozen=True)
class RerankOptions:
    """Options of one call for scores; None means the model's default.

    Attributes:
        instruction: What makes a document relevant, for models that read it.
        truncate: A pair that is too long: `end` (the default) and `start` cut as the model's reference does, `none` is
            an error.
        activation: `sigmoid`, or `none` for logits as they are.
        method: For models that read query and document each by itself: what they are compared by, or `hybrid`.
        weights: Of the methods of `hybrid`: dense, sparse and multi, of those that the model has.

    Raises:
        InvalidInputError: If a value can not be right for any model.
    """

    instruction: str | None = None
    truncate: str | None = None
    activation: str | None = None
    method: str | None = None
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_type("instruction", self.instruction, (str,), "a string")
        check_characters("instruction", self.instruction)
        check_choice("truncate", self.truncate, TRUNCATIONS)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("method", self.method, METHODS)
        given = self.weights
        if given is not None and not (isinstance(given, Sequence) and all(isinstance(one, Real) for one in given)):
            raise InvalidInputError(f"weights: must be a sequence of numbers, got {given!r}")

    def parameters(self) -> Parameters:
        """The request parameters, without those that are None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.weights is not None:
            values["weights"] = ",".join(f"{float(weight):g}" for weight in self.weights)
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class ClassifyOptions:
    """Options of one call for labels; None means the model's default.

    Attributes:
        truncate: A text that is too long: `none` (the default) is an error, `end` and `start` cut there.
        prompt_name: Name of a prompt of the checkpoint, put before each text.
        instruction: Free text for the model's instruction template.
        input_type: `query` or `document`: the prompt that the checkpoint has for those. Of this and the two before only
            one can be given.

    Raises:
        InvalidInputError: If a value can not be right for any model.
    """

    truncate: str | None = None
    prompt_name: str | None = None
    instruction: str | None = None
    input_type: str | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_name", "instruction"):
            check_type(name, getattr(self, name), (str,), "a string")
            check_characters(name, getattr(self, name))
        check_choice("truncate", self.truncate, TRUNCATIONS)
        check_choice("input_type", self.input_type, INPUT_TYPES)
        given = [name for name in ("prompt_name", "instruction", "input_type") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidInputError(f"{' and '.join(given)}: only one of them can be given")

    def parameters(self) -> Parameters:
        """The request parameters, without those that are None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}
