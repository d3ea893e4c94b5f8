"""Scores of pairs by what an embedding model makes of each text, through the service."""

import numpy as np
import pytest

from lazuli.config import EngineConfig
from lazuli.errors import InputError, NonFiniteError, OptionError
from lazuli.scoring.options import RerankOptions
from lazuli.scoring.service import RerankService
from lazuli.tokenwise.probe import run_pairs


@pytest.fixture
def serve():
    services = []

    def serve(folder, *, streaming=False, **parameters):
        parameters = {"checkpoint": str(folder), "device": "cpu", "dtype": "float32", "task": "rerank"} | parameters
        services.append(RerankService(EngineConfig(**parameters), streaming=streaming))
        return services[-1]

    yield serve
    for service in services:
        service.close()


@pytest.fixture
def pairs(rows_of):
    return list(zip(rows_of(5, 9, 5, 20, 3), rows_of(33, 5, 62, 7, 3, seed=2), strict=True))


def laid_out(pairs):
    width = max(len(query) + len(document) for query, document in pairs)
    ids, mask, types = np.zeros((len(pairs), width), np.int32), *np.zeros((2, len(pairs), width), np.int8)
    for row, (query, document) in enumerate(pairs):
        length = len(query) + len(document)
        ids[row, :length] = [*query, *document]
        mask[row, :length] = 1
        types[row, len(query) : length] = 1
    return ids, mask, types


def scores_of(service, pairs, sender, **options):
    service.submit(*laid_out(pairs), RerankOptions(**options), sender)
    return sender.wait().embedding("score")[:, 0]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("parameters", [{}, {"max_batch_sequences": 4}, {"max_batch_sequences": 1, "token_budget": 9}])
def test_methods(tmp_path, write_bge_m3, serve, pairs, make_sender, streaming, parameters):
    write_bge_m3(tmp_path)
    service = serve(tmp_path, streaming=streaming, **parameters)
    expected = run_pairs(service.engine.run, pairs)
    for number, method in enumerate(("dense", "sparse", "multi")):
        scores = scores_of(service, pairs, make_sender(), method=method)
        np.testing.assert_allclose(scores, expected[:, number], atol=1e-5)
    np.testing.assert_allclose(scores_of(service, pairs, make_sender()), expected.mean(axis=1), atol=1e-5)
    weighted = scores_of(service, pairs, make_sender(), method="hybrid", weights="1, 0, 3")
    np.testing.assert_allclose(weighted, (expected[:, 0] + 3 * expected[:, 2]) / 4, atol=1e-5)
    squashed = scores_of(service, pairs, make_sender(), method="dense", activation="sigmoid")
    np.testing.assert_allclose(squashed, 1 / (1 + np.exp(-expected[:, 0])), atol=1e-5)


def test_a_model_of_vectors_compares_them(tiny_checkpoint, serve, pairs, make_sender):
    service = serve(tiny_checkpoint)
    queries, documents = (service.engine.embed_ids([pair[side] for pair in pairs]) for side in (0, 1))
    scores = scores_of(service, pairs, make_sender())
    np.testing.assert_allclose(scores, (queries * documents).sum(axis=1), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "sparse"}, "method: sparse: the model has no such scores, it has dense"),
        ({"method": "dense", "weights": "1"}, "weights: only of use with method=hybrid"),
        ({"method": "hybrid", "weights": "1,2"}, "weights: must be 1 numbers from 0 on, of dense; got '1,2'"),
        ({"method": "hybrid", "weights": "-1"}, "weights: must be 1 numbers from 0 on"),
        ({"method": "hybrid", "weights": "nan"}, "weights: must be 1 numbers from 0 on"),
        ({"method": "hybrid", "weights": "0"}, "weights: '0': one of them must be above 0"),
    ],
)
def test_what_the_model_has_not(tiny_checkpoint, serve, pairs, make_sender, options, message):
    with pytest.raises(OptionError, match=message):
        scores_of(serve(tiny_checkpoint), pairs, make_sender(), **options)


def test_what_is_not_finite_names_the_row(tmp_path, write_bge_m3, serve, pairs, make_sender):
    write_bge_m3(tmp_path)
    service, sender = serve(tmp_path), make_sender()
    service.engine._encoder._model.embedding.tokens[77] = float("nan")
    pairs[3] = (pairs[3][0], np.array([0, 77, 2], dtype=np.int32))
    service.submit(*laid_out(pairs), RerankOptions(), sender)
    error = sender.wait().error()
    assert isinstance(error, NonFiniteError)
    assert str(error).startswith("score[3]: the model computed NaN")


class TestInput:
    @pytest.fixture
    def refuse(self, tiny_checkpoint, serve, make_sender):
        def refuse(ids, mask, types, message):
            with pytest.raises(InputError, match=message):
                serve(tiny_checkpoint).submit(ids, mask, types, RerankOptions(), make_sender())

        return refuse

    def test_segments_are_needed(self, refuse, pairs):
        refuse(
            *laid_out(pairs)[:2], None, "token_type_ids: missing; this model reads query and document each by itself"
        )

    def test_their_shape(self, refuse, pairs):
        ids, mask, types = laid_out(pairs)
        refuse(ids, mask, types[:, :-1], r"token_type_ids: the shape \[5, 66\] differs from that of attention_mask")

    @pytest.mark.parametrize(
        ("types", "message"),
        [
            ([1, 1, 1, 1], r"token_type_ids\[0\]: no token belongs to the query"),
            ([0, 0, 0, 0], r"token_type_ids\[0\]: no token belongs to the document"),
            ([0, 1, 0, 1], r"token_type_ids\[0\]: must be 0 for the query, which is first"),
            ([0, 0, 2, 1], r"token_type_ids\[0\]: must be 0 for the query, which is first"),
        ],
    )
    def test_their_values(self, refuse, types, message):
        ids = np.array([[1, 2, 3, 4]], dtype=np.int32)
        refuse(ids, np.ones((1, 4), np.int8), np.array([types], dtype=np.int8), message)

    def test_a_text_that_is_too_long(self, refuse, rows_of):
        message = r"input_ids\[1\]: 65 tokens of the document, but the model takes at most 64"
        refuse(*laid_out([(rows_of(64)[0], rows_of(64)[0]), (rows_of(3)[0], rows_of(65)[0])]), message)

    def test_an_id_out_of_the_vocabulary(self, refuse, rows_of):
        bad = np.array([0, 100, 2], dtype=np.int32)
        refuse(*laid_out([(rows_of(3)[0], bad)]), r"input_ids\[0\]\[4\]: 100, but the vocabulary has ids 0 to 99")
