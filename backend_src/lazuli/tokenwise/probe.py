"""Batches that no request asked for: to warm up, to test and to measure.

Takes an engine and token ids, returns what its programs compute. Waits for it.
"""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazuli.tokenwise.form import TokenForm
from lazuli.tokenwise.request import PAIRS, TOKENS

# `Engine.run`.
Run = Callable[[str, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class _Request:
    form: TokenForm | None = None
    finish: int = 0


@dataclass(frozen=True)
class _Row:
    input_ids: np.ndarray
    request: _Request
    spans: np.ndarray | None = None


def run_tokens(run: Run, rows: SequenceOf[np.ndarray], form: TokenForm) -> dict[str, np.ndarray]:
    """The outputs of a batch of rows of ids, in their order."""
    request = _Request(form, form.finish)
    sequences = [_Row(ids, request) for ids in rows]
    result, ordered = run(TOKENS, sequences)
    places = {id(sequence): place for place, sequence in enumerate(ordered)}
    own = result.result()[np.array([places[id(sequence)] for sequence in sequences])]
    return form.read(np.arange(len(rows)), own)


def run_pairs(run: Run, pairs: SequenceOf[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The scores of a batch of pairs of a query's and a document's ids, [P, M]."""
    sequences = [
        _Row(np.concatenate(pair), _Request(), np.array([len(text) for text in pair], dtype=np.int32)) for pair in pairs
    ]
    scores: np.ndarray = run(PAIRS, sequences)[0].result()
    return scores
