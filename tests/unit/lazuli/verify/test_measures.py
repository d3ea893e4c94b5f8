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


def test_two_that_are_zero_are_equal():
    left, right = np.array([[0, 0], [0, 0], [1, 0]]), np.array([[0, 0], [0, 2], [0, 0]])
    assert measures.cosines(left, right).tolist() == [1, 0, 0]


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


def test_rank_correlation_where_some_are_equal():
    left, right = np.round(random(4, 30)), np.round(random(4, 30, seed=1))
    expected = [spearmanr(first, second).statistic for first, second in zip(left, right, strict=True)]
    np.testing.assert_allclose(measures.rank_correlation(left, right), expected)
    flat = np.ones((1, 5))
    assert measures.rank_correlation(flat, flat).tolist() == [1]
    assert measures.rank_correlation(flat, random(1, 5)).tolist() == [0]


def test_scores_that_are_equal_are_so_to_the_last_digit():
    signs = np.sign(random(50, 384))
    products = signs @ signs.T
    scores = measures.scores(signs, signs)
    assert len(np.unique(scores)) == len(np.unique(products))


def test_max_sim():
    queries = [random(3, 8), random(1, 8, seed=1)]
    documents = [random(2, 8, seed=2), random(5, 8, seed=3), random(1, 8, seed=4)]
    expected = [
        [sum(max(float(one @ other) for other in document) for one in query) for document in documents]
        for query in queries
    ]
    np.testing.assert_allclose(measures.max_sim(queries, documents), expected)


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
