"""References out of files, of every kind."""

import numpy as np
import pytest

from lazuli.errors import ConfigError
from lazuli.verify.answers import Labels, Scores, TokenVectors, Vectors, Weights
from lazuli.verify.question import Question
from lazuli.verify.reference import check_reference, load, save
from lazuli.verify.sample import Sample

SAMPLE = Sample(("q", "r"), ("a", "b", "c"), ({}, {}))


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


QUESTIONS = {
    Vectors: Question(SAMPLE, "embed"),
    Weights: Question(SAMPLE, "embed", "sparse"),
    TokenVectors: Question(SAMPLE, "embed", "multi"),
    Scores: Question(SAMPLE, "rerank"),
    Labels: Question(SAMPLE, "classify"),
}
ANSWERS = (
    Vectors(random(2, 4), random(3, 4)),
    Weights(random(2, 9), random(3, 9)),
    TokenVectors([random(3, 4), random(1, 4)], [random(2, 4), random(5, 4), random(1, 4)]),
    Scores(random(2, 3)),
    Labels(random(5, 2), ("yes", "nö")),
)


@pytest.mark.parametrize("answers", ANSWERS, ids=lambda answers: type(answers).__name__)
def test_what_is_saved_is_loaded(tmp_path, answers):
    file = tmp_path / "reference.npz"
    save(file, answers)
    loaded = load(file, QUESTIONS[type(answers)])
    assert type(loaded) is type(answers)
    for name, values in answers.arrays().items():
        np.testing.assert_array_equal(loaded.arrays()[name], values)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Vectors, {"queries": random(2, 4)}),
        (Vectors, {"queries": random(2, 4), "documents": random(3)}),
        (Vectors, {"queries": np.array([["a"]]), "documents": random(3, 4)}),
        (TokenVectors, {"queries": random(2, 4), "documents": random(3, 4)}),
        (TokenVectors, {"queries": random(2, 4, 3), "queries_count": [4, 5], "documents": random(1, 4, 3)}),
        (TokenVectors, {"queries": random(2, 4, 3), "queries_count": [4, 0], "documents": random(1, 4, 3)}),
        (Scores, {"scores": random(2)}),
        (Labels, {"probabilities": random(5, 2)}),
        (Labels, {"probabilities": random(5, 2), "labels": ["one"]}),
    ],
)
def test_a_file_of_something_else(tmp_path, kind, content):
    file = tmp_path / "reference.npz"
    if kind is TokenVectors and "queries_count" in content:
        content["documents_count"] = np.array([1])
    np.savez(file, **content)
    with pytest.raises(ConfigError, match=r"reference: .*reference.npz does not hold "):
        load(file, QUESTIONS[kind])


@pytest.mark.parametrize("content", [b"", b"PK damaged", b"\x93NUMPY"])
def test_a_file_that_is_none_of_numpy(tmp_path, content):
    file = tmp_path / "reference.npz"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="does not hold queries and documents"):
        load(file, QUESTIONS[Vectors])


def test_references_that_there_are(tmp_path):
    file = tmp_path / "reference.npz"
    with pytest.raises(ConfigError, match="is neither a file nor one of transformers, sentence-transformers"):
        check_reference(str(file))
    file.touch()
    for name in (str(file), "transformers"):
        check_reference(name)


def test_a_library_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="sentence-transformers is not installed; pip install sentence-transformers"):
        check_reference("sentence-transformers")
