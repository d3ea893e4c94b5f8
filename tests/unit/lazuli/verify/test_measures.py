import numpy as np
import pytest
from scipy.stats import spearmanr

from lazuli.verify import measures


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_cosines_do_not_see_lengths():
    left = random(5, 8)
    np.testing.assert_allclose(measures.cosines(left, left * np.arange(1, 6)[:, None]), 1)
    np.testing.assert_allclose(measures.cosines(left, -left), -1)
    assert measures.cosines(np.zeros((1, 3)), np.ones((1, 3))) == [0]


def test_scores_are_cosines_of_all_pairs():
    queries, documents = random(3, 8), random(4, 8, seed=1)
    scores = measures.scores(queries, documents)
    for row in range(3):
        expected = measures.cosines(np.repeat(queries[row : row + 1], 4, axis=0), documents)
        np.testing.assert_allclose(scores[row], expected)


def test_rank_correlation_is_spearmans():
    left, right = random(4, 30), random(4, 30, seed=1)
    expected = [spearmanr(first, second).statistic for first, second in zip(left, right, strict=True)]
    np.testing.assert_allclose(measures.rank_correlation(left, right), expected)
    np.testing.assert_allclose(measures.rank_correlation(left, np.exp(left)), 1)
    assert measures.rank_correlation(left[:, :1], right[:, :1]).tolist() == [1] * 4


@pytest.mark.parametrize(("top", "expected"), [(1, 0.0), (2, 0.5), (3, 1.0), (9, 1.0)])
def test_overlap(top, expected):
    left, right = np.array([[3.0, 2.0, 1.0]]), np.array([[2.0, 1.0, 3.0]])
    assert measures.overlap(left, right, top).tolist() == [expected]


def test_ndcg():
    values = np.array([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1], [1.0, 0.0, 0.0]])
    relevant = [{0: 2, 1: 1}, {2: 1}, {}]
    # By hand: the first is ideal; in the second the one that counts is third, 1 / log2(4); the third has none.
    np.testing.assert_allclose(measures.ndcg(values, relevant), [1.0, 0.5])
    np.testing.assert_allclose(measures.ndcg(values, relevant, top=2), [1.0, 0.0])


def test_ndcg_against_sklearn():
    metrics = pytest.importorskip("sklearn.metrics")
    values, grades = random(6, 20), np.random.default_rng(1).integers(0, 3, size=(6, 20))
    relevant = [{column: grade for column, grade in enumerate(row) if grade} for row in grades.tolist()]
    expected = [metrics.ndcg_score([2.0**grade - 1], [row], k=10) for grade, row in zip(grades, values, strict=True)]
    np.testing.assert_allclose(measures.ndcg(values, relevant), expected)
