import os
import threading

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """`initialize` sets this; monkeypatch puts it back."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", os.environ.get("TOKENIZERS_PARALLELISM", ""))


@pytest.fixture
def model(load, arguments):
    model = load("tokenizer").TritonPythonModel()
    chosen = {"threads": "2", "tokenizer_backend": "huggingface"}  # the one that gains by threads
    model.initialize(arguments(checkpoint="all-MiniLM-L6-v2", max_seq_length="8", **chosen))
    return model


def texts(*values):
    return np.array([[value] for value in values], dtype=np.object_)


def answer(model, pb_utils, *values, **parameters):
    (response,) = model.execute([pb_utils.Request(parameters, text=texts(*values))])
    return response


def test_ids_mask_and_truncation(model, pb_utils):
    response = answer(model, pb_utils, b"hello world", b"a b c d e f g h i", truncate="end")
    assert response.error is None
    tensors = response.tensors
    assert tensors["input_ids"].shape == tensors["attention_mask"].shape == (2, 8)
    assert tensors["input_ids"][0].tolist() == [101, 7592, 2088, 102, 0, 0, 0, 0]
    assert tensors["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0, 0, 0], [1] * 8]
    assert tensors["truncated"].tolist() == [[False], [True]]
    assert [tensors[name].dtype for name in ("input_ids", "attention_mask", "truncated")] == [
        np.int32,
        np.int8,
        np.bool_,
    ]


def test_a_limit_of_one_token_of_text_can_be_served(load, arguments, pb_utils):
    """Of which the text that it is tried on at the start has more."""
    model = load("tokenizer").TritonPythonModel()
    model.initialize(arguments(checkpoint="all-MiniLM-L6-v2", max_seq_length="3"))
    assert answer(model, pb_utils, b"hello").tensors["input_ids"].tolist() == [[101, 7592, 102]]


def test_a_bad_request_does_not_touch_the_others(model, pb_utils):
    requests = [
        pb_utils.Request(text=texts(b"fine")),
        pb_utils.Request(text=texts(b"ok", b"\xff")),
        pb_utils.Request({"trunkate": "end"}, text=texts(b"ok")),
        pb_utils.Request(text=texts(b"a b c d e f g h")),
        pb_utils.Request(),
        pb_utils.Request(text=np.empty((0, 1), dtype=np.object_)),
        pb_utils.Request({"prompt_name": "q"}, text=texts(b"ok")),
        pb_utils.Request(text=texts(b"fine too")),
    ]
    responses = model.execute(requests)
    messages = [response.error and response.error.message() for response in responses]
    assert messages[0] is None
    assert messages[-1] is None
    expected = [
        "text[1]: not valid UTF-8",
        "unknown parameter 'trunkate'",
        "text[0]: 10 tokens",
        "text: the input is missing",
    ]
    expected += ["text: there is no text", "prompt_name: 'q' is not known"]
    assert all(message.startswith(start) for message, start in zip(messages[1:-1], expected, strict=True))
    assert {response.error.code for response in responses[1:-1]} == {pb_utils.TritonError.INVALID_ARG}


def test_long_texts_are_answered_at_the_same_time_and_short_ones_at_once(load, arguments, pb_utils, monkeypatch):
    """Where the library lets several threads work."""
    model = load("tokenizer").TritonPythonModel()
    model.initialize(arguments(checkpoint="all-MiniLM-L6-v2", tokenizer_backend="huggingface", threads="2"))
    tokenize, together, seen = model._tokenizer.tokenize, threading.Barrier(2), []

    def meet(values, options):
        seen.append(threading.current_thread())
        if len(values[0]) > 5:
            together.wait(timeout=10)
        return tokenize(values, options)

    monkeypatch.setattr(model._tokenizer, "tokenize", meet)
    long = [pb_utils.Request({"truncate": "end"}, text=texts(b"hello " * 1000)) for _ in range(2)]
    assert [model.execute([request]) for request in long] == [None, None]
    assert [request.wait().responses[0].tensors["truncated"].tolist() for request in long] == [[[True]]] * 2
    assert answer(model, pb_utils, b"hello").tensors["input_ids"].tolist() == [[101, 7592, 102]]
    assert len(set(seen)) == 3
    assert seen[-1] is threading.current_thread()
    model.finalize()


def test_nor_does_one_that_fails_unexpectedly(model, pb_utils, monkeypatch):
    tokenize = model._tokenizer.tokenize

    def fail(values, options):
        if values == ["odd"]:
            raise RuntimeError("no idea")
        return tokenize(values, options)

    monkeypatch.setattr(model._tokenizer, "tokenize", fail)
    requests = [pb_utils.Request(text=texts(value)) for value in (b"fine", b"odd", b"fine")]
    first, odd, last = model.execute(requests)
    assert first.error is None
    assert last.error is None
    assert odd.error.code == pb_utils.TritonError.INTERNAL
    assert odd.error.message() == "unexpected RuntimeError: no idea"


LONG = [b"a very long text " * 300] * 10


def test_a_query_does_not_wait_for_documents(model, pb_utils, monkeypatch):
    """Which come first, and are held up here until the query has its answer."""
    tokenize, query = model._tokenizer.tokenize, pb_utils.Request(text=texts(b"hello"))

    def hold(values, options):
        if len(values) > 1:
            assert query.sender.ended.wait(10)
        return tokenize(values, options)

    monkeypatch.setattr(model._tokenizer, "tokenize", hold)
    documents = [pb_utils.Request({"truncate": "end"}, text=texts(*LONG)) for _ in range(3)]
    assert model.execute([*documents, query]) is None
    assert query.wait().responses[0].tensors["input_ids"].tolist() == [[101, 7592, 102]]
    for request in documents:
        (response,) = request.wait().responses
        assert response.tensors["truncated"].all()
        assert response.tensors["input_ids"].shape == (10, 8)


def test_documents_alone_are_answered_later_and_mistakes_too(model, pb_utils):
    fine, bad = (pb_utils.Request({"truncate": truncate}, text=texts(*LONG)) for truncate in ("end", "none"))
    assert model.execute([fine]) is None
    assert model.execute([bad]) is None
    model.finalize()
    assert fine.sender.responses[0].error is None
    assert bad.sender.responses[0].error.message().startswith("text[0]: over")
