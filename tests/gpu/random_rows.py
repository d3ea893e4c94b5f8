"""What tests of MiniLM's vectors share: rows of random ids, and how far two answers differ."""

import numpy as np

VOCABULARY = 30522


def rows_of(lengths, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(1000, VOCABULARY, size=length, dtype=np.int32) for length in lengths]


def worst_cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())
