"""Scores and labels from both clients, which share everything but what is awaited."""

import asyncio

import numpy as np
import pytest

from lazuli_client import AsyncLazuliClient, InputTypeError, InvalidInputError, LazuliClient, ServerError

QUERY = "red blue green"
DOCUMENTS = ["blue", "nothing", "green red", "red", "red green blue", ""]
BEST_FIRST = [4, 2, 0, 3, 1, 5]  # equal ones in their order


@pytest.fixture(params=["sync", "async"])
def make(request, fake):
    """A client whose calls return at once, and its transport."""

    def make(hook=lambda request: None, **settings):
        transport = fake.Transport(hook)
        if request.param == "sync":
            return LazuliClient(transport=transport, **settings), transport

        class Awaited:
            def __getattr__(self, name):
                async def call(*args, **kwargs):
                    async with AsyncLazuliClient(transport=fake.AsyncTransport(transport), **settings) as client:
                        return await getattr(client, name)(*args, **kwargs)

                return lambda *args, **kwargs: asyncio.run(call(*args, **kwargs))

        return Awaited(), transport

    return make


class TestRerank:
    @pytest.mark.parametrize("rows", [64, 4, 1])
    def test_the_best_first_and_equal_ones_in_their_order(self, make, rows):
        client, transport = make(rows_per_request=rows)
        ranking = client.rerank(QUERY, DOCUMENTS)
        assert ranking.indices.tolist() == BEST_FIRST
        assert ranking.scores.tolist() == [3, 2, 1, 1, 0, 0]
        assert ranking.token_counts.tolist() == [6, 5, 4, 4, 4, 3]
        assert not ranking.truncated.any()
        assert (ranking.indices.dtype, ranking.scores.dtype, ranking.documents) == (np.int64, np.float32, None)
        assert len(transport.requests) == -(-len(DOCUMENTS) // rows)
        first = min(transport.requests, key=lambda request: request.rows[0])
        assert first.model == "rerank"
        assert {name: values.shape for name, values in first.tensors.items()} == {
            "query": (min(rows, 6), 1),
            "document": (min(rows, 6), 1),
        }

    def test_only_some_with_their_texts(self, make):
        client, _ = make()
        ranking = client.rerank(QUERY, np.array(DOCUMENTS), top_k=3, return_documents=True)
        hits = [(hit.index, hit.score, hit.document) for hit in ranking]
        assert hits == [(4, 3.0, "red green blue"), (2, 2.0, "green red"), (0, 1.0, "blue")]
        assert len(ranking) == 3
        assert len(client.rerank(QUERY, DOCUMENTS, top_k=100)) == 6
        assert [hit.document for hit in client.rerank(QUERY, "blue")] == [None]

    def test_options_travel_as_parameters(self, make):
        client, transport = make(model="judge")
        client.rerank(QUERY, DOCUMENTS, instruction="colours", truncate="none", activation="sigmoid")
        client.rerank(QUERY, DOCUMENTS, method="hybrid", weights=[1, 0.25])
        client.rerank(QUERY, DOCUMENTS)
        assert {request.model for request in transport.requests} == {"judge"}
        assert [request.parameters for request in transport.requests] == [
            {"instruction": "colours", "truncate": "none", "activation": "sigmoid"},
            {"method": "hybrid", "weights": "1,0.25"},
            {},
        ]

    def test_the_row_of_an_error_is_the_callers(self, make):
        client, _ = make(rows_per_request=2)
        with pytest.raises(InvalidInputError, match=r"^document\[4\]: no token") as caught:
            client.rerank(QUERY, ["a", "b", "c", "d", "bad", "e"])
        assert caught.value.row == 4

    @pytest.mark.parametrize(
        ("arguments", "options", "kind", "match"),
        [
            ((QUERY, []), {}, InvalidInputError, "document: there is no text"),
            ((QUERY, ["a", 1]), {}, InvalidInputError, r"document\[1\]: must be a string, got int"),
            ((QUERY, {"a"}), {}, InputTypeError, "document: an ordered sequence is needed"),
            ((["a"], ["b"]), {}, InputTypeError, "query: must be a string, got list"),
            (("\ud800", ["b"]), {}, InvalidInputError, r"query\[0\]: not valid Unicode"),
            ((QUERY, ["a"]), {"top_k": 0}, InvalidInputError, "top_k: must be a positive integer, got 0"),
            ((QUERY, ["a"]), {"top_k": True}, InvalidInputError, "top_k: must be a positive integer, got True"),
            ((QUERY, ["a"]), {"truncate": "split"}, InvalidInputError, "truncate: must be one of none, end, start"),
            ((QUERY, ["a"]), {"activation": "tanh"}, InvalidInputError, "activation: must be one of sigmoid, none"),
            ((QUERY, ["a"]), {"method": "sum"}, InvalidInputError, "method: must be one of dense"),
            ((QUERY, ["a"]), {"weights": 1}, InvalidInputError, "weights: must be a sequence of numbers"),
            ((QUERY, ["a"]), {"instruction": "a\0b"}, InvalidInputError, "instruction: NUL at character 1"),
        ],
    )
    def test_what_can_not_be_right_is_refused_before_it_is_sent(self, make, arguments, options, kind, match):
        client, transport = make()
        with pytest.raises(kind, match=match):
            client.rerank(*arguments, **options)
        assert transport.requests == []

    def test_an_answer_that_lacks_rows_is_an_error(self, make, fake, monkeypatch):
        client, transport = make()
        monkeypatch.setattr(
            transport, "send", lambda request, timeout_s: {"score": np.zeros((1, 1)), "token_count": np.zeros((2, 1))}
        )
        with pytest.raises(ServerError, match="score: the server answered 1 values for 2 rows"):
            client.rerank(QUERY, ["a", "b"])


class TestClassify:
    TEXTS = ("ab", "abcdef", "x", "a longer one")

    @pytest.mark.parametrize("rows", [64, 3, 1])
    def test_labels_in_the_order_of_the_texts(self, make, rows):
        client, transport = make(rows_per_request=rows)
        answer = client.classify(self.TEXTS)
        assert answer.labels == ("short", "long", "short", "long")
        assert answer.names == ("short", "long", "naïve")
        assert answer.probabilities.shape == (4, 3)
        assert answer.probabilities.argmax(axis=1).tolist() == [0, 1, 0, 1]
        assert answer.token_counts.tolist() == [2, 6, 1, 12]
        assert (answer.probabilities.dtype, len(answer)) == (np.float32, 4)
        asked = [request.parameters.get("labels", False) for request in transport.requests]
        assert sum(asked) == 1, "the names of all labels are sent once"

    def test_options_travel_as_parameters(self, make):
        client, transport = make(model="moods")
        client.classify("a", truncate="start", prompt_name="p")
        assert transport.requests[0].model == "moods"
        assert transport.requests[0].parameters == {"truncate": "start", "prompt_name": "p", "labels": True}

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"truncate": "split"}, "truncate: must be one of none, end, start"),
            ({"input_type": "passage"}, "input_type: must be one of"),
            ({"prompt_name": "a", "instruction": "b"}, "prompt_name and instruction: only one"),
        ],
    )
    def test_what_can_not_be_right_is_refused_before_it_is_sent(self, make, options, match):
        client, transport = make()
        with pytest.raises(InvalidInputError, match=match):
            client.classify("a", **options)
        assert transport.requests == []

    def test_an_answer_of_other_labels_is_an_error(self, make, fake, monkeypatch):
        client, transport = make(rows_per_request=1)
        send = transport.send

        def other(request, timeout_s):
            outputs = send(request, timeout_s)
            return outputs if "labels" in outputs else {**outputs, "probability": np.zeros((1, 2), np.float32)}

        monkeypatch.setattr(transport, "send", other)
        with pytest.raises(ServerError, match=r"probability: the server answered \[2, 3\] values for 3 labels"):
            client.classify(["a", "b"])


def test_batches_of_labels_have_their_names_each(fake):
    with LazuliClient(transport=fake.Transport(), rows_per_request=2) as client:
        batches = list(client.classify_batches([["a", "abcd", "b"], "abcd"]))
    assert [batch.labels for batch in batches] == [("short", "long", "short"), ("long",)]
    assert [batch.names for batch in batches] == [("short", "long", "naïve")] * 2
