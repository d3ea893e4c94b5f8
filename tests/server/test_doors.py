"""Every door gives the vectors of sentence-transformers, and understands every option."""

import numpy as np
import pytest

from .conftest import assert_same_vectors
from .wire import DOORS


@pytest.fixture(params=DOORS, ids=list(DOORS))
def door(request, server):
    return lambda texts, **options: DOORS[request.param](server, texts, **options)


def test_equals_sentence_transformers(door, reference):
    texts, expected = reference
    # In several requests: one of mixed lengths at a time, and rows by themselves.
    actual = np.concatenate([door(texts[start : start + 25])[0] for start in range(0, len(texts), 25)])
    assert_same_vectors(actual, expected)


def test_counts_tokens(door, reference, sentence_transformer):
    texts = reference[0][:20]
    expected = [len(ids) for ids in sentence_transformer.tokenizer(texts)["input_ids"]]
    assert door(texts)[1].tolist() == expected


def test_dimensions_cut_then_normalise(door, reference):
    texts, expected = reference[0][:5], reference[1][:5]
    cut = expected[:, :64] / np.linalg.norm(expected[:, :64], axis=1, keepdims=True)
    assert_same_vectors(door(texts, dimensions=64, force_dimensions=True)[0], cut)


def test_without_normalisation_the_length_differs(door, reference):
    texts, expected = reference[0][:5], reference[1][:5]
    actual, _ = door(texts, normalize=False)
    norms = np.linalg.norm(actual, axis=1, keepdims=True)
    assert (np.abs(norms - 1) > 0.01).all()
    assert_same_vectors(actual / norms, expected)


def test_without_normalisation_dimensions_only_cut(door, reference):
    texts = reference[0][:5]
    whole, _ = door(texts, normalize=False)
    cut, _ = door(texts, normalize=False, dimensions=10, force_dimensions=True)
    np.testing.assert_allclose(cut, whole[:, :10], atol=1e-5)


@pytest.mark.parametrize("side", ["end", "start"])
def test_truncates_at_either_side_in_every_row(door, sentence_transformer, side):
    words = " ".join(f"word{number}" for number in range(400))
    texts = ["short", words, f"{words} and the end"]
    sentence_transformer.tokenizer.truncation_side = {"end": "right", "start": "left"}[side]
    try:
        expected = sentence_transformer.encode(texts, show_progress_bar=False)
    finally:
        sentence_transformer.tokenizer.truncation_side = "right"
    actual, counts = door(texts, truncate=side)
    assert_same_vectors(actual, expected)
    assert counts[1:].tolist() == [256, 256]


def test_instruction_is_put_before_each_text(door, sentence_transformer):
    texts = ["a {text} with {braces}", "another"]
    expected = sentence_transformer.encode([f"query: {text}" for text in texts], show_progress_bar=False)
    assert_same_vectors(door(texts, instruction="query: ")[0], expected)


def test_alone_equals_batched(door, reference):
    texts = reference[0][:40:4]
    batched, _ = door(texts)
    alone = np.concatenate([door([text])[0] for text in texts])
    np.testing.assert_allclose(alone, batched, atol=1e-5)
    assert (alone * batched).sum(axis=1).min() >= 1 - 1e-6
