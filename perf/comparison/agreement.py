"""Whether the targets of a run compute the same thing, before any of them is timed.

Takes targets and rows; returns the least cosine of each to the reference. A target that cuts texts, reads other tokens
or pools in another way is refused.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from comparison.targets import Target
from peers.contract import Answer
from texts.lengths import Lengths
from texts.rows import Rows, RowSpec

_SEED = 10**9 + 7
_TEXTS_A_LENGTH = 3
# What words of a vocabulary do not show: capitals, marks, digits, signs, and scripts a model may not know.
_ODD_TEXTS = (
    "What is the boiling point of nitrogen at 2.5 bar?",
    "Crème brûlée, naïve café - prices from €3.50 (incl. 20 % tax)",
    "def add(a: int, b: int) -> int: return a + b",
    "A",
)


class DisagreementError(Exception):
    """The targets do not compute the same; the message says which and how."""


def probes(spec: RowSpec, lengths: Sequence[Lengths]) -> list[Rows]:
    """Requests of every length of a suite, and of odd texts unless ids are sent."""
    source = spec.open(_SEED)
    made = [source.rows(_TEXTS_A_LENGTH, each) for each in dict.fromkeys(lengths)]
    if spec.tokenizer_file is None:
        made.append(Rows(list(_ODD_TEXTS), 0))
    return made


def check(targets: Sequence[Target], reference: Target, requests: Sequence[Rows], least: float) -> dict[str, float]:
    """Compare all targets with one.

    Returns:
        The least cosine of each target that is not the reference.

    Raises:
        DisagreementError: If a cosine is below `least`, or a target read another number of tokens.
    """
    answers = {target.name: ask_all(target, requests) for target in targets if target is not reference}
    return compare({reference.name: ask_all(reference, requests), **answers}, requests, least)


def ask_all(target: Target, requests: Sequence[Rows]) -> list[Answer]:
    """What a target answers.

    Raises:
        DisagreementError: If it read another number of tokens.
    """
    return [_asked(target, rows) for rows in requests]


def compare(answers: Mapping[str, Sequence[Answer]], requests: Sequence[Rows], least: float) -> dict[str, float]:
    """Compare the answers of all systems, by name, with those of the first.

    Returns:
        The least cosine of each but the first.

    Raises:
        DisagreementError: If a cosine is below `least`.
    """
    (reference, expected), *others = answers.items()
    return {name: _compare(name, reference, requests, ours, expected, least) for name, ours in others}


def least_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Of pairs of rows; lengths do not matter."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    products = (ours * theirs).sum(axis=1)
    return float((products / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)).min())


def _asked(target: Target, rows: Rows) -> Answer:
    answer = target.ask(rows)
    if len(answer.vectors) != len(rows.texts):
        raise DisagreementError(f"{target.name}: {len(answer.vectors)} vectors for {len(rows.texts)} texts")
    if rows.tokens and answer.tokens not in (None, rows.tokens):
        raise DisagreementError(
            f"{target.name} read {answer.tokens} tokens where the checkpoint's tokenizer makes {rows.tokens} of "
            f"{len(rows.texts)} texts"
        )
    return answer


def _compare(
    name: str,
    reference: str,
    requests: Sequence[Rows],
    answers: Sequence[Answer],
    expected: Sequence[Answer],
    least: float,
) -> float:
    worst = 1.0
    for rows, ours, theirs in zip(requests, answers, expected, strict=True):
        if ours.vectors.shape != theirs.vectors.shape:
            raise DisagreementError(
                f"{name} has {ours.vectors.shape[1]} dimensions, but {reference} {theirs.vectors.shape[1]}"
            )
        cosine = least_cosine(ours.vectors, theirs.vectors)
        if not cosine >= least:  # NaN too
            raise DisagreementError(
                f"{name} and {reference} disagree: cosine {cosine:.6f}, but at least {least} is asked for; "
                f"{len(rows.texts)} texts of {rows.tokens or 'few'} tokens"
            )
        worst = min(worst, cosine)
    return worst
