"""What still passes, for each kind of answers.

Takes what a caller says, returns numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from lazuli.errors import ConfigError
from lazuli.verify.answers import LABELS, SCORES

_VECTORS = {"min_cosine": 0.999, "min_overlap": 0.95, "max_ndcg_drop": 0.01}
_BYTES = {"min_cosine": 0.99, "min_overlap": 0.9, "max_ndcg_drop": 0.02}
_BITS = {"min_overlap": 0.6, "max_ndcg_drop": 0.05}
USUAL: Mapping[str, Mapping[str, float]] = {
    "float32": _VECTORS,
    "float16": _VECTORS,
    "int8": _BYTES,
    "uint8": _BYTES,
    "binary": _BITS,
    "ubinary": _BITS,
    "sparse": _VECTORS,
    "multi": _VECTORS,
    SCORES: {"max_score_difference": 0.1, "min_overlap": 0.95, "max_ndcg_drop": 0.01},
    LABELS: {"max_probability_difference": 0.02, "min_equal_labels": 0.99},
}
_RANGES = {"min_cosine": (-1, 1), "max_score_difference": (0, float("inf"))}


@dataclass(frozen=True)
class Limits:
    """What a caller asks for; None takes what is usual for the kind of answers.

    Attributes:
        min_cosine: Least cosine of any text's vector with the reference's.
        min_overlap: Least mean share of the best ten documents that both have.
        max_ndcg_drop: By how much NDCG@10 may be below the reference's.
        max_score_difference: Largest difference of a score, in standard deviations of the reference's scores.
        max_probability_difference: Largest difference of a probability.
        min_equal_labels: Least share of texts with the same best label.
    """

    min_cosine: float | None = None
    min_overlap: float | None = None
    max_ndcg_drop: float | None = None
    max_score_difference: float | None = None
    max_probability_difference: float | None = None
    min_equal_labels: float | None = None

    def __post_init__(self) -> None:
        for name, value in self._given().items():
            low, high = _RANGES.get(name, (0, 1))
            if not low <= value <= high:
                raise ConfigError(f"{name}: {value:g}, but it must be from {low} to {high:g}")

    def of(self, kind: str) -> dict[str, float]:
        """The limits for a kind of answers.

        Raises:
            ConfigError: If one was asked for that they do not have.
        """
        usual, given = USUAL[kind], self._given()
        other = next((name for name in given if name not in usual), None)
        if other is not None:
            raise ConfigError(f"{other}: not a limit of {kind}, which has {', '.join(usual)}")
        return {**usual, **given}

    def _given(self) -> dict[str, float]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}
