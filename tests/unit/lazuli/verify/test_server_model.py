"""A served model, by a client that answers by itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from lazuli.verify.server_model import ServerModel
from lazuli_client.labels import Labels
from lazuli_client.ranking import Scores, rank
from lazuli_client.token_outputs import SparseVector


class Client:
    """Keeps what it is asked."""

    def __init__(self, url, **settings):
        self.asked = [(url, settings)]
        self.closed = False

    def close(self):
        self.closed = True

    def embed(self, texts, **options):
        self.asked.append((texts, options))
        sparse = [SparseVector(np.array([len(text)]), np.array([0.5])) for text in texts]
        multi = [np.ones((len(text), 2)) for text in texts]
        return SimpleNamespace(embeddings=np.array([[len(text)] for text in texts]), sparse=sparse, multi=multi)

    def embed_context(self, documents, **options):
        self.asked.append((documents, options))
        return [SimpleNamespace(embeddings=np.array([[len(text)] for text in chunks])) for chunks in documents]

    def rerank(self, query, documents, **options):
        self.asked.append((query, options))
        scores = np.array([len(document) for document in documents], np.float32)
        return rank(Scores(scores, np.ones(len(scores)), np.zeros(len(scores), np.bool_)), documents, None, False)

    def classify(self, texts, **options):
        self.asked.append((texts, options))
        return Labels(("a",) * len(texts), np.ones((len(texts), 2)), ("a", "b"), np.ones(1), np.ones(1))


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr("lazuli_client.LazuliClient", Client)
    return ServerModel("here:1", "http", "mine")


def test_every_kind_of_answer(model):
    texts = ["aa", "b", "ccc"]
    assert model.dense(texts, "query", "int8").tolist() == [[2], [1], [3]]
    assert [(ids.tolist(), weights.tolist()) for ids, weights in model.sparse(texts, "document")] == [
        ([2], [0.5]),
        ([1], [0.5]),
        ([3], [0.5]),
    ]
    assert [len(row) for row in model.multi(texts, "query")] == [2, 1, 3]
    assert model.chunks([["aa", "b"], ["ccc"]], "document", "float16").tolist() == [[2], [1], [3]]
    assert model.scores("q", texts).tolist() == [2, 1, 3]  # in the order of the documents, not of the ranking
    assert model.labels(texts).names == ("a", "b")
    embed = {"truncate": "end"}
    assert model._client.asked == [
        ("here:1", {"protocol": "http", "model": "mine", "tls": None}),
        (texts, embed | {"input_type": "query", "output": "int8"}),
        (texts, embed | {"input_type": "document", "output": "sparse"}),
        (texts, embed | {"input_type": "query", "output": "multi"}),
        ([["aa", "b"], ["ccc"]], {"input_type": "document", "output": "float16"}),
        ("q", {"activation": "none"}),
        (texts, embed),
    ]
    model.close()
    assert model._client.closed
