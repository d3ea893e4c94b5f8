"""Targets that agree, and such that do not."""

import numpy as np
import pytest

from comparison.agreement import DisagreementError, check, least_cosine, probes
from peers.contract import Answer
from texts.lengths import exactly
from texts.rows import Rows, RowSpec

SPEC = RowSpec(tuple(f"word{letter}" for letter in "abcdefghij"), 1)
REQUESTS = [Rows(["a", "b"], 6), Rows(["c"], 0)]
VECTORS = np.array([[1, 0, 0], [0, 2, 0]], np.float32)


class FakeTarget:
    def __init__(self, name, *, turn=0.0, tokens=6, vectors=VECTORS):
        self.name, self.tokens = name, tokens
        rotation = np.array([[np.cos(turn), np.sin(turn), 0], [-np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
        self.vectors = (vectors @ rotation[: vectors.shape[1], : vectors.shape[1]]).astype(np.float32)

    def ask(self, rows):
        return Answer(self.vectors[: len(rows.texts)], self.tokens)


def run(*others, least=0.999):
    return check([*others], FakeTarget("reference"), REQUESTS, least)


def test_lengths_of_vectors_do_not_matter():
    assert run(FakeTarget("other", vectors=VECTORS * 7)) == {"other": pytest.approx(1.0)}


def test_the_least_cosine_of_each_is_told():
    cosines = run(FakeTarget("near", turn=0.01), FakeTarget("nearer", turn=0.001))
    assert cosines == {"near": pytest.approx(np.cos(0.01)), "nearer": pytest.approx(np.cos(0.001))}


def test_the_reference_is_not_compared_with_itself():
    reference = FakeTarget("reference")
    assert check([reference], reference, REQUESTS, 0.999) == {}


def test_other_vectors_are_refused_and_both_named():
    with pytest.raises(DisagreementError, match=r"other and reference disagree: cosine 0\.995"):
        run(FakeTarget("other", turn=0.1))
    assert run(FakeTarget("other", turn=0.1), least=0.99)


def test_nothing_that_is_not_finite_agrees():
    with pytest.raises(DisagreementError, match="cosine nan"):
        run(FakeTarget("other", vectors=VECTORS * np.nan))


def test_other_dimensions_are_refused():
    with pytest.raises(DisagreementError, match="other has 2 dimensions, but reference 3"):
        run(FakeTarget("other", vectors=VECTORS[:, :2]))


def test_another_count_of_tokens_is_refused_where_the_system_counts():
    with pytest.raises(DisagreementError, match="other read 5 tokens where the checkpoint's tokenizer makes 6"):
        run(FakeTarget("other", tokens=5))
    assert run(FakeTarget("other", tokens=None))


def test_too_few_vectors_are_refused():
    with pytest.raises(DisagreementError, match="other: 1 vectors for 2 texts"):
        run(FakeTarget("other", vectors=VECTORS[:1]))


def test_every_length_is_asked_for_once_and_odd_texts_too():
    requests = probes(SPEC, [exactly(5), exactly(9), exactly(5)])
    assert [rows.tokens for rows in requests] == [15, 27, 0]
    assert any("é" in text for text in requests[-1].texts)


def test_least_cosine_is_the_least_of_all_rows():
    assert least_cosine(VECTORS, VECTORS[::-1]) == 0
