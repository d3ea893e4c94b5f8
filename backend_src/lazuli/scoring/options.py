"""The options of requests that ask for scores or labels instead of vectors.

Takes the JSON text of the request parameters, as `options.py` does. Every step of such an ensemble gets all of them.
"""

from dataclasses import dataclass

from lazuli.options import HYBRID, Options, RequestOptions, refuse_split

__all__ = ["HYBRID", "ClassifyOptions", "RerankOptions"]


@dataclass(frozen=True)
class RerankOptions(Options):
    """Options of one request for scores; None means the model's default.

    Attributes:
        truncate: What happens to a pair that is too long: `end` and `start` cut as the model's reference does, `none`
            is an error.
        instruction: What makes a document relevant, for models that read it.
        activation: `sigmoid` or `none`, which leaves logits as they are.
        method: For models that read query and document each by itself: `dense`, `sparse` or `multi`, what they are
            compared by, or `hybrid`, all that the model has.
        weights: Of the methods of `hybrid`, in this order, with commas between.
    """

    truncate: str = "end"
    instruction: str | None = None
    activation: str | None = None
    method: str | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        refuse_split(self.truncate)


@dataclass(frozen=True)
class ClassifyOptions(Options):
    """Options of one request for labels; None means the model's default.

    Attributes:
        truncate: What happens to a text that is too long: `none` is an error, `end` and `start` cut there.
        prompt_name: As for vectors, as are the next two.
        labels: Whether the answer holds the names of all labels.
    """

    truncate: str = "none"
    prompt_name: str | None = None
    instruction: str | None = None
    input_type: str | None = None
    labels: bool = False

    def __post_init__(self) -> None:
        refuse_split(self.truncate)

    def of_texts(self) -> RequestOptions:
        """Those of them that say how texts become tokens."""
        return RequestOptions(self.prompt_name, self.instruction, self.truncate, input_type=self.input_type)
