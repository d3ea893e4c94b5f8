"""Whether a model is as good as its reference.

Takes the vectors of both on one sample, returns measures and whether each is within its limit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lazuli.errors import ConfigError
from lazuli.verify import measures
from lazuli.verify.sample import Sample


@dataclass(frozen=True)
class Vectors:
    """What a model makes of a sample.

    Attributes:
        queries: [Q, D] float32.
        documents: [N, D] float32.
    """

    queries: np.ndarray
    documents: np.ndarray


@dataclass(frozen=True)
class Limits:
    """What still passes.

    Attributes:
        min_cosine: Least cosine of any text's vector with the reference's.
        min_overlap: Least mean share of the best ten documents that both have.
        max_ndcg_drop: By how much NDCG@10 may be below the reference's.
    """

    min_cosine: float = 0.999
    min_overlap: float = 0.95
    max_ndcg_drop: float = 0.01

    def __post_init__(self) -> None:
        for name, value, low in (
            ("min_cosine", self.min_cosine, -1),
            ("min_overlap", self.min_overlap, 0),
            ("max_ndcg_drop", self.max_ndcg_drop, 0),
        ):
            if not low <= value <= 1:
                raise ConfigError(f"{name}: {value:g}, but it must be from {low} to 1")


@dataclass(frozen=True)
class Check:
    """One measure with its limit.

    Attributes:
        key: Its name for programs.
        name: What was measured.
        value: How it came out.
        limit: What it is held against; None if it is only shown.
        passed: Whether it is within the limit.
    """

    key: str
    name: str
    value: float
    limit: float | None = None
    passed: bool = True


@dataclass(frozen=True)
class Verdict:
    """All measures."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether none is beyond its limit."""
        return all(check.passed for check in self.checks)

    def table(self) -> str:
        """For a person."""
        lines = []
        for check in self.checks:
            limit = "" if check.limit is None else f"limit {check.limit:.6g}"
            outcome = "" if check.limit is None else "ok" if check.passed else "FAILED"
            lines.append(f"{check.name:<34} {check.value:>10.6f}  {limit:<16} {outcome}".rstrip())
        return "\n".join([*lines, "passed" if self.passed else "FAILED"])

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return {"passed": self.passed, **{check.key: float(check.value) for check in self.checks}}


def judge(candidate: Vectors, reference: Vectors, sample: Sample, limits: Limits) -> Verdict:
    """Compare.

    Raises:
        ConfigError: If the two do not have vectors of the same shapes, or some that are not finite.
    """
    _check_shapes(candidate, reference, sample)
    alike = np.concatenate(
        [
            measures.cosines(getattr(candidate, part), getattr(reference, part))
            for part in ("queries", "documents")
        ]
    )  # fmt: skip
    mine, theirs = (measures.scores(vectors.queries, vectors.documents) for vectors in (candidate, reference))
    checks = [
        _at_least("least_cosine", "cosine, least", alike.min(), limits.min_cosine),
        Check("mean_cosine", "cosine, mean", alike.mean()),
        Check("rank_correlation", "rank correlation, mean", measures.rank_correlation(mine, theirs).mean()),
    ]
    shared = measures.overlap(mine, theirs).mean()
    checks.append(_at_least("overlap", "best ten in common, mean", shared, limits.min_overlap))
    gains = [measures.ndcg(scores, sample.relevant) for scores in (mine, theirs)]
    if len(gains[0]):
        drop = gains[1].mean() - gains[0].mean()
        checks.append(Check("ndcg", "NDCG@10", gains[0].mean()))
        checks.append(Check("reference_ndcg", "NDCG@10 of the reference", gains[1].mean()))
        checks.append(
            Check("ndcg_drop", "NDCG@10, drop", drop, limits.max_ndcg_drop, bool(drop <= limits.max_ndcg_drop))
        )
    return Verdict(tuple(checks))


def _at_least(key: str, name: str, value: float, limit: float) -> Check:
    return Check(key, name, value, limit, bool(value >= limit))


def _check_shapes(candidate: Vectors, reference: Vectors, sample: Sample) -> None:
    for name, texts in (("queries", sample.queries), ("documents", sample.documents)):
        mine, theirs = getattr(candidate, name), getattr(reference, name)
        if mine.shape != theirs.shape or len(mine) != len(texts):
            raise ConfigError(
                f"{name}: vectors of shape {list(mine.shape)} against {list(theirs.shape)} of the reference, for "
                f"{len(texts)} texts"
            )
        for owner, vectors in (("the model", mine), ("the reference", theirs)):
            if not np.isfinite(vectors).all():
                row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
                raise ConfigError(f"{name}[{row}]: {owner} gave NaN or Inf")
