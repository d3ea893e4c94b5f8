import os

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """`initialize` sets this; monkeypatch puts it back."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", os.environ.get("TOKENIZERS_PARALLELISM", ""))


@pytest.fixture
def model(load, arguments):
    model = load("pair_tokenizer").TritonPythonModel()
    model.initialize(
        arguments(checkpoint="all-MiniLM-L6-v2", pair_template="segments", max_seq_length="8", threads="2")
    )
    return model


def column(*values):
    return np.array([[value] for value in values], dtype=np.object_)


def test_ids_mask_segments_and_truncation(model, pb_utils):
    request = pb_utils.Request(query=column(b"hello", b"hello"), document=column(b"world", b"a b c d e f g h"))
    (response,) = model.execute([request])
    assert response.error is None
    tensors = response.tensors
    assert sorted(tensors) == ["attention_mask", "input_ids", "token_type_ids", "truncated"]
    assert tensors["input_ids"][0].tolist() == [101, 7592, 102, 2088, 102, 0, 0, 0]
    assert tensors["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]]
    assert tensors["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0, 0], [1] * 8]
    assert tensors["truncated"].tolist() == [[False], [True]]


def test_a_bad_request_does_not_touch_the_others(model, pb_utils):
    fine = {"query": column(b"a"), "document": column(b"b")}
    requests = [
        pb_utils.Request(**fine),
        pb_utils.Request(query=column(b"a")),
        pb_utils.Request(query=column(b"a", b"\xff"), document=column(b"a", b"b")),
        pb_utils.Request({"truncate": "none"}, query=column(b"a"), document=column(b"a b c d e f")),
        pb_utils.Request({"truncate": "split"}, **fine),
        pb_utils.Request({"dimensions": 4}, **fine),
        pb_utils.Request({"instruction": "x"}, **fine),
        pb_utils.Request({"activation": "none"}, **fine),
    ]
    responses = model.execute(requests)
    messages = [response.error and response.error.message() for response in responses]
    assert messages[0] is messages[-1] is None
    expected = [
        "document: the input is missing",
        "query[1]: not valid UTF-8",
        "document[0]: 10 tokens with its query, but at most 8",
        "truncate: ",
        "unknown parameter 'dimensions'; known: activation, deadline_ms, instruction, ",
        "instruction: this model reads none",
    ]
    assert [message.startswith(start) for message, start in zip(messages[1:-1], expected, strict=True)] == [True] * 6, (
        messages
    )
    assert {response.error.code for response in responses[1:-1]} == {pb_utils.TritonError.INVALID_ARG}


def test_the_tokenizer_for_labels_knows_their_options(load, arguments, pb_utils):
    model = load("classify_tokenizer").TritonPythonModel()
    model.initialize(arguments(checkpoint="all-MiniLM-L6-v2", max_seq_length="8", prompts='{"p": "hello "}'))
    requests = [
        pb_utils.Request({"labels": True, "truncate": "end"}, text=column(b"a b c d e f g h")),
        pb_utils.Request({"prompt_name": "p"}, text=column(b"world")),
        pb_utils.Request({"normalize": True}, text=column(b"world")),
        pb_utils.Request(text=column(b"a b c d e f g h")),
    ]
    cut, prompted, unknown, long = model.execute(requests)
    assert cut.tensors["input_ids"].shape == (1, 8)
    assert prompted.tensors["input_ids"].tolist() == [[101, 7592, 2088, 102]]
    assert unknown.error.message().startswith(
        "unknown parameter 'normalize'; known: deadline_ms, input_type, instruction, labels"
    )
    assert long.error.message().startswith("text[0]: 10 tokens")
