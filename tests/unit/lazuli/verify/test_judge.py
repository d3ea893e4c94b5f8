import numpy as np
import pytest

from lazuli.errors import ConfigError
from lazuli.verify.answers import Bits, Codes, Labels, Scores, TokenVectors, Vectors
from lazuli.verify.judge import judge as judge_question
from lazuli.verify.limits import Limits
from lazuli.verify.question import Question
from lazuli.verify.sample import Sample

SAMPLE = Sample(("q", "r"), tuple("abcdefghijklmnop"), ({0: 2}, {1: 1}))


def judge(candidate, reference, sample=SAMPLE, limits=None, **question):
    return judge_question(
        candidate, reference, Question(sample, question.pop("task", "embed"), **question), limits or Limits()
    )


def failures(verdict):
    return {check.key for check in verdict.checks if not check.passed}


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
    assert failures(verdict) == failing
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


def test_bits_are_ranked_only():
    exact = vectors()
    bits = Bits(np.sign(exact.queries), np.sign(exact.documents))
    verdict = judge(bits, exact, output="binary", limits=Limits(min_overlap=0, max_ndcg_drop=1))
    assert {"rank_correlation", "overlap", "ndcg_drop"} <= set(verdict.as_json())
    assert "least_cosine" not in verdict.as_json()
    assert failures(judge(bits, exact, output="binary", limits=Limits(min_overlap=1, max_ndcg_drop=1))) == {"overlap"}


def test_codes_are_decoded_and_shown_as_they_are():
    exact = vectors()
    shifted = Vectors(exact.queries * 30 + 100, exact.documents * 30 + 100)
    seen = judge(Codes(exact.queries, exact.documents, shifted), exact, output="int8").as_json()
    assert seen["overlap"] == 1 > seen["codes_overlap"]


def test_a_native_quantiser_rounds_tanh():
    exact = vectors(noise=3.0)  # of large values
    rounded = [np.round(127 * np.tanh(part)) for part in (exact.queries, exact.documents)]
    codes = Codes(rounded[0] / 127, rounded[1] / 127, Vectors(*rounded))
    limits = Limits(min_overlap=0, max_ndcg_drop=1)
    assert judge(codes, exact, output="int8", native=True, limits=limits).passed
    assert failures(judge(codes, exact, output="int8", limits=limits)) == {"least_cosine"}


def token_vectors(noise=0.0):
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(2 + number % 3, 8)) for number in range(18)]
    rows = [row + noise * rng.normal(size=row.shape) for row in rows]
    return TokenVectors(rows[:2], rows[2:])


def test_vectors_of_tokens():
    limits = Limits(max_ndcg_drop=1)
    assert judge(token_vectors(), token_vectors(), output="multi", limits=limits).passed
    assert "least_cosine" in failures(judge(token_vectors(0.2), token_vectors(), output="multi", limits=limits))
    fewer = TokenVectors(token_vectors().queries, [row[:1] for row in token_vectors().documents])
    with pytest.raises(ConfigError, match=r"documents\[0\]: token vectors of shape \[1, 8\] against \[4, 8\]"):
        judge(fewer, token_vectors(), output="multi")


def scores(noise=0.0):
    rng = np.random.default_rng(0)
    return Scores(10 * rng.normal(size=(2, 16)) + noise * rng.normal(size=(2, 16)))


def test_scores():
    seen = judge(scores(), scores(), task="rerank").as_json()
    assert (seen["score_difference"], seen["overlap"]) == (0, 1)
    assert seen["compared"] == "scores of 32 pairs from 2 queries, 16 documents"
    limits = Limits(min_overlap=0, max_ndcg_drop=1)
    assert judge(scores(0.1), scores(), task="rerank", limits=limits).passed
    assert failures(judge(scores(1.0), scores(), task="rerank", limits=limits)) == {"relative_difference"}
    # The order is the same, the values are not.
    assert failures(judge(Scores(scores().values + 5), scores(), task="rerank")) == {"relative_difference"}
    assert failures(judge(Scores(-scores().values), scores(), task="rerank")) >= {"relative_difference", "overlap"}


def test_scores_that_are_all_the_same():
    flat = Scores(np.ones((2, 16)))
    assert judge(flat, flat, task="rerank").passed
    assert "relative_difference" in failures(judge(scores(), flat, task="rerank"))


def test_only_pairs_that_were_asked_for_count():
    asked, others = scores(), scores(5.0).values
    question = Question(SAMPLE, "rerank", num_candidates=4)
    np.put_along_axis(others, question.candidates, np.take_along_axis(asked.values, question.candidates, 1), 1)
    seen = judge(asked, Scores(others), task="rerank", num_candidates=4).as_json()
    assert seen["score_difference"] == 0
    assert seen["ndcg"] == seen["reference_ndcg"] <= 1


def test_gains_of_scores_are_of_the_right_documents():
    perfect = Scores(np.array([[number in grades for number in range(16)] for grades in SAMPLE.relevant], dtype=float))
    for count in (3, 16):
        assert judge(perfect, perfect, task="rerank", num_candidates=count).as_json()["ndcg"] == 1


@pytest.mark.parametrize("shape", [(2, 15), (16, 2)])
def test_scores_of_other_pairs(shape):
    with pytest.raises(ConfigError, match="the reference has"):
        judge(scores(), Scores(np.ones(shape)), task="rerank")


def labels(shift=0.0, names=("x", "y")):
    values = np.linspace(0.1, 0.9, 18) + shift
    return Labels(np.stack([values, 1 - values], axis=1), names)


def test_labels():
    assert judge(labels(), labels(), task="classify").passed
    assert failures(judge(labels(0.03), labels(), task="classify", limits=Limits(min_equal_labels=0))) == {
        "probability_difference"
    }
    turned = Labels(labels().values[:, ::-1], labels().names)
    assert failures(judge(turned, labels(), task="classify", limits=Limits(max_probability_difference=1))) == {
        "equal_labels"
    }
    with pytest.raises(ConfigError, match="labels: x, y against y, x of the reference"):
        judge(labels(), labels(names=("y", "x")), task="classify")
    with pytest.raises(ConfigError, match="labels: 18 texts against 17 of the reference, for 18"):
        judge(labels(), Labels(labels().values[1:], labels().names), task="classify")


def test_a_limit_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="min_cosine: not a limit of scores, which has max_score_difference"):
        judge(scores(), scores(), task="rerank", limits=Limits(min_cosine=0.9))
