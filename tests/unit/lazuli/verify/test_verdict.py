import numpy as np
import pytest

from lazuli.errors import ConfigError
from lazuli.verify.sample import Sample
from lazuli.verify.verdict import Limits, Vectors, judge

SAMPLE = Sample(("q", "r"), tuple("abcdefghijklmnop"), ({0: 2}, {1: 1}))


def vectors(noise=0.0):
    rng = np.random.default_rng(0)
    exact, other = rng.normal(size=(18, 12)), rng.normal(size=(18, 12))
    exact[0], exact[1] = exact[2] + 0.1, exact[3] + 0.1  # each query is next to its document
    mixed = exact + noise * other
    return Vectors(mixed[:2], mixed[2:])


def test_the_same_vectors_pass_whatever_their_lengths():
    exact = vectors()
    verdict = judge(Vectors(exact.queries * 3, exact.documents * 2), exact, SAMPLE, Limits(min_cosine=1 - 1e-12))
    assert verdict.passed
    assert verdict.table().endswith("passed")
    seen = verdict.as_json()
    assert (seen["passed"], seen["overlap"], seen["ndcg"], seen["ndcg_drop"]) == (True, 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("noise", "limits", "failing"),
    [
        (0.05, {"min_overlap": 0, "max_ndcg_drop": 1}, {"least_cosine"}),
        (2.0, {"min_cosine": -1, "max_ndcg_drop": 1}, {"overlap"}),
        (5.0, {"min_cosine": -1, "min_overlap": 0}, {"ndcg_drop"}),
    ],
)
def test_each_limit_can_be_missed(noise, limits, failing):
    verdict = judge(vectors(noise), vectors(), SAMPLE, Limits(**limits))
    assert {check.key for check in verdict.checks if not check.passed} == failing
    assert not verdict.passed
    assert "FAILED" in verdict.table()


def test_better_than_the_reference_is_no_failure():
    assert judge(vectors(), vectors(5.0), SAMPLE, Limits(min_cosine=-1, min_overlap=0)).passed


def test_a_sample_without_answers_has_no_ndcg():
    sample = Sample(SAMPLE.queries, SAMPLE.documents, ({}, {}))
    assert "ndcg" not in judge(vectors(), vectors(), sample, Limits()).as_json()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: Vectors(v.queries[:, :4], v.documents), r"queries: vectors of shape \[2, 4\] against \[2, 12\]"),
        (lambda v: Vectors(v.queries, v.documents[:3]), r"documents: vectors of shape \[3, 12\] against \[16, 12\]"),
        (lambda v: Vectors(v.queries, v.documents * [[np.nan]] * 12), "NaN or Inf"),
    ],
)
def test_vectors_that_cannot_be_compared(change, said):
    with pytest.raises(ConfigError, match=said):
        judge(change(vectors()), vectors(), SAMPLE, Limits())


def test_a_row_with_nan_is_named():
    broken = vectors()
    broken.documents[5, 3] = np.nan
    with pytest.raises(ConfigError, match=r"documents\[5\]: the model gave NaN"):
        judge(broken, vectors(), SAMPLE, Limits())


@pytest.mark.parametrize(("field", "value"), [("min_cosine", 1.1), ("min_overlap", -0.1), ("max_ndcg_drop", 2)])
def test_limits_beyond_reason(field, value):
    with pytest.raises(ConfigError, match=f"{field}: {value}"):
        Limits(**{field: value})
