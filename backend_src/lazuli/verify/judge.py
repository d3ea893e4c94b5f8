"""Whether a model is as good as its reference.

Takes the answers of both to one question, returns measures and whether each is within its limit.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lazuli.errors import ConfigError
from lazuli.verify import measures
from lazuli.verify.answers import Answers, Bits, Codes, Labels, Scores
from lazuli.verify.limits import Limits
from lazuli.verify.question import Question
from lazuli.verify.verdict import Check, Verdict

_PARTS = ("queries", "documents")
_Limits = Mapping[str, float]


def judge(candidate: Answers, reference: Answers, question: Question, limits: Limits) -> Verdict:
    """Compare.

    Args:
        candidate: Of the kind that the question has.
        reference: The same; of encoded vectors, those in float32.
        question: What both were asked.
        limits: What still passes.

    Raises:
        ConfigError: If the two cannot be compared, or a value is not finite.
    """
    chosen = limits.of(question.kind)
    if isinstance(candidate, Scores):
        checks = _judge_scores(candidate, reference, question, chosen)
    elif isinstance(candidate, Labels):
        checks = _judge_labels(candidate, reference, question, chosen)
    else:
        checks = _judge_vectors(candidate, reference, question, chosen)
    return Verdict(question.describe(), tuple(checks))


def _judge_vectors(candidate: Any, reference: Any, question: Question, limits: _Limits) -> list[Check]:
    for part in _PARTS:
        _check_part(part, getattr(candidate, part), getattr(reference, part), len(getattr(question.sample, part)))
    checks = []
    if not isinstance(candidate, Bits):
        rounded = question.native and question.output == "int8"  # of tanh, as `decoding` says
        targets = [np.tanh(getattr(reference, part)) if rounded else getattr(reference, part) for part in _PARTS]
        alike = np.concatenate(
            [_cosines(getattr(candidate, part), target) for part, target in zip(_PARTS, targets, strict=True)]
        )
        checks.append(Check.at_least("least_cosine", "cosine, least", alike.min(), limits["min_cosine"]))
        checks.append(Check("mean_cosine", "cosine, mean", alike.mean()))
    relevant = [dict(grades) for grades in question.sample.relevant]
    checks += _judge_ranking(candidate.scores(), reference.scores(), relevant, limits)
    if isinstance(candidate, Codes) and not question.native:
        shared = measures.overlap(candidate.codes.scores(), reference.scores()).mean()
        checks.append(Check("codes_overlap", "best ten in common, if codes are not decoded", shared))
    return checks


def _judge_scores(candidate: Scores, reference: Any, question: Question, limits: _Limits) -> list[Check]:
    sample, chosen = question.sample, question.candidates
    shape = (len(sample.queries), len(sample.documents))
    for owner, values in (("the model", candidate.values), ("the reference", reference.values)):
        if values.shape != shape:
            raise ConfigError(f"scores: {owner} has {list(values.shape)}, but there are {list(shape)} pairs")
    mine, theirs = (np.take_along_axis(values, chosen, axis=1) for values in (candidate.values, reference.values))
    _check_finite("scores", mine, theirs)
    difference, spread = np.abs(mine - theirs), theirs.std()
    # Where all scores of the reference are one, any other is infinitely far.
    largest = difference.max() / spread if spread else np.inf if difference.max() else 0.0
    limit = limits["max_score_difference"]
    relevant = [
        {place: grades[number] for place, number in enumerate(row) if number in grades}
        for row, grades in zip(chosen.tolist(), sample.relevant, strict=True)
    ]
    return [
        Check("score_difference", "score, largest difference", difference.max()),
        Check("score_spread", "score, standard deviation of the reference", spread),
        Check.at_most("relative_difference", "score, largest difference by that", largest, limit),
        *_judge_ranking(mine, theirs, relevant, limits),
    ]


def _judge_labels(candidate: Labels, reference: Any, question: Question, limits: _Limits) -> list[Check]:
    num_texts = len(question.sample.queries) + len(question.sample.documents)
    mine, theirs = candidate.values, reference.values
    if candidate.names != reference.names:
        raise ConfigError(f"labels: {', '.join(candidate.names)} against {', '.join(reference.names)} of the reference")
    if mine.shape != theirs.shape or len(mine) != num_texts:
        raise ConfigError(f"labels: {len(mine)} texts against {len(theirs)} of the reference, for {num_texts}")
    _check_finite("probabilities", mine, theirs)
    difference = np.abs(mine - theirs)
    equal = (mine.argmax(axis=1) == theirs.argmax(axis=1)).mean()
    most = limits["max_probability_difference"]
    return [
        Check.at_most("probability_difference", "probability, largest difference", difference.max(), most),
        Check("mean_probability_difference", "probability, mean difference", difference.mean()),
        Check.at_least("equal_labels", "texts with the same label", equal, limits["min_equal_labels"]),
    ]


def _judge_ranking(
    mine: np.ndarray, theirs: np.ndarray, relevant: list[dict[int, int]], limits: _Limits
) -> list[Check]:
    shared = measures.overlap(mine, theirs).mean()
    checks = [
        Check("rank_correlation", "rank correlation, mean", measures.rank_correlation(mine, theirs).mean()),
        Check.at_least("overlap", "best ten in common, mean", shared, limits["min_overlap"]),
    ]
    gains = [measures.ndcg(scores, relevant) for scores in (mine, theirs)]
    if len(gains[0]):
        drop = gains[1].mean() - gains[0].mean()
        checks.append(Check("ndcg", "NDCG@10", gains[0].mean()))
        checks.append(Check("reference_ndcg", "NDCG@10 of the reference", gains[1].mean()))
        checks.append(Check.at_most("ndcg_drop", "NDCG@10, drop", drop, limits["max_ndcg_drop"]))
    return checks


def _cosines(mine: Any, theirs: Any) -> np.ndarray:
    if isinstance(mine, np.ndarray):
        return measures.cosines(mine, theirs)
    return measures.cosines(np.concatenate(mine), np.concatenate(theirs))


def _check_part(name: str, mine: Any, theirs: Any, num_texts: int) -> None:
    if isinstance(mine, np.ndarray):
        if mine.shape != theirs.shape or len(mine) != num_texts:
            raise ConfigError(
                f"{name}: vectors of shape {list(mine.shape)} against {list(theirs.shape)} of the reference, for "
                f"{num_texts} texts"
            )
        _check_finite(name, mine, theirs)
        return
    if not len(mine) == len(theirs) == num_texts:
        raise ConfigError(f"{name}: {len(mine)} texts against {len(theirs)} of the reference, for {num_texts}")
    for row, (own, other) in enumerate(zip(mine, theirs, strict=True)):
        if own.shape != other.shape:
            raise ConfigError(
                f"{name}[{row}]: token vectors of shape {list(own.shape)} against {list(other.shape)} of the reference"
            )
        _check_finite(f"{name}[{row}]", own, other)


def _check_finite(name: str, mine: np.ndarray, theirs: np.ndarray) -> None:
    for owner, values in (("the model", mine), ("the reference", theirs)):
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values).all(axis=1)))
            raise ConfigError(f"{name}[{row}]: {owner} gave NaN or Inf")
