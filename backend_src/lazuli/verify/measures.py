"""How alike two sets of vectors are, and what they rank.

Takes arrays, returns numbers. Knows nothing of texts or models.
"""

from collections.abc import Mapping, Sequence

import numpy as np

TOP = 10


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Cosine of each row of [N, D] with the same row of the other: [N] float64.

    Where a vector is zero, as that of a text without weights, 1 if both are, else 0.
    """
    left, right = _unit(left), _unit(right)
    products: np.ndarray = (left * right).sum(axis=1)
    products[~left.any(axis=1) & ~right.any(axis=1)] = 1
    return products


def scores(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Cosine of each query [Q, D] with each document [N, D]: [Q, N] float64.

    Without the last digits, which would order what is equal.
    """
    products: np.ndarray = np.round(_unit(queries) @ _unit(documents).T, 12)
    return products


def max_sim(queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> np.ndarray:
    """For each vector of a query its largest product with one of a document; of these the sum: [Q, N] float64.

    Args:
        queries: Q arrays, [S, D].
        documents: N arrays, [S', D].
    """
    edges = np.cumsum([0, *map(len, documents)])
    stacked = np.concatenate(documents).T.astype(np.float64)
    # None of the pieces is empty, as every text has at least one vector.
    rows = [
        np.maximum.reduceat(query.astype(np.float64) @ stacked, edges[:-1], axis=1).sum(axis=0) for query in queries
    ]
    return np.array(rows)


def rank_correlation(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each row of [Q, N] with the other's: [Q].

    Of rows that order nothing, 1 if neither does, else 0.
    """
    first, second = (_ranks(values) - (values.shape[1] - 1) / 2 for values in (left, right))
    sizes = np.sqrt((first**2).sum(axis=1)), np.sqrt((second**2).sum(axis=1))
    flat = ((sizes[0] == 0) & (sizes[1] == 0)).astype(np.float64)
    product = sizes[0] * sizes[1]
    correlations: np.ndarray = np.divide((first * second).sum(axis=1), product, out=flat, where=product > 0)
    return correlations


def overlap(left: np.ndarray, right: np.ndarray, top: int = TOP) -> np.ndarray:
    """Share of the best `top` columns of each row of [Q, N] that both have: [Q]."""
    best = [np.argsort(-values, axis=1, kind="stable")[:, :top] for values in (left, right)]
    shared = [len(set(first) & set(second)) for first, second in zip(*(rows.tolist() for rows in best), strict=True)]
    return np.array(shared) / best[0].shape[1]


def ndcg(values: np.ndarray, relevant: Sequence[Mapping[int, int]], top: int = TOP) -> np.ndarray:
    """Normalised discounted cumulative gain (Järvelin and Kekäläinen, 2002), gains of 2^grade - 1.

    Args:
        values: [Q, N] scores.
        relevant: Grades by document, of each query.
        top: Ranks that count.

    Returns:
        One number for each query that has a relevant document.
    """
    order = np.argsort(-values, axis=1, kind="stable")[:, :top]
    gained = []
    for row, grades in enumerate(relevant):
        best = _discounted(sorted(grades.values(), reverse=True)[:top])
        if best > 0:
            gained.append(_discounted([grades.get(column, 0) for column in order[row].tolist()]) / best)
    return np.array(gained)


def _discounted(grades: Sequence[int]) -> float:
    return float(sum((2**grade - 1) / np.log2(rank + 2) for rank, grade in enumerate(grades)))


def _ranks(values: np.ndarray) -> np.ndarray:
    """From 0 on in each row; of equal values each gets the mean."""
    ranks = np.empty(values.shape)
    for row, own in zip(ranks, values, strict=True):
        _, places, counts = np.unique(own, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        row[:] = (ends - (counts + 1) / 2)[places]
    return ranks


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
