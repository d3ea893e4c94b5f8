"""The models `context_tokenizer` and `contextual`, as far as they differ from `tokenizer` and `embedding`."""

import os

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """`initialize` sets this; monkeypatch puts it back."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", os.environ.get("TOKENIZERS_PARALLELISM", ""))


@pytest.fixture
def tokenizer(load, arguments):
    model = load("context_tokenizer").TritonPythonModel()
    model.initialize(arguments(checkpoint="all-MiniLM-L6-v2", max_seq_length="9", separator="[MASK]", threads="2"))
    return model


@pytest.fixture
def contextual(load, arguments, tmp_path, write_bert):
    model = load("contextual").TritonPythonModel()
    folder = write_bert(tmp_path, max_position_embeddings=128)
    model.initialize(arguments(checkpoint=str(folder), device="cpu", dtype="float32", task="context"))
    yield model
    model.finalize()


def texts(*values):
    return np.array([[value] for value in values], dtype=np.object_)


def numbers(*values):
    return np.array(values, dtype=np.int32).reshape(-1, 1)


def test_ids_and_mask(tokenizer, pb_utils):
    request = pb_utils.Request(text=texts(b"hello", b"world", b"hello world"), document=numbers(4, 4, 5))
    (response,) = tokenizer.execute([request])
    assert response.error is None
    assert response.tensors["input_ids"].tolist() == [[101, 7592, 0, 0], [103, 2088, 102, 0], [101, 7592, 2088, 102]]
    assert response.tensors["attention_mask"].tolist() == [[1, 1, 0, 0], [3, 1, 1, 0], [1, 1, 1, 1]]
    assert response.tensors["truncated"].tolist() == [[False]] * 3


def test_a_limit_of_one_token_of_text_can_be_served(load, arguments, pb_utils):
    """Of which the chunks that it is tried on at the start have more."""
    model = load("context_tokenizer").TritonPythonModel()
    model.initialize(arguments(checkpoint="all-MiniLM-L6-v2", max_seq_length="3"))
    (response,) = model.execute([pb_utils.Request(text=texts(b"hello"), document=numbers(0))])
    assert response.tensors["input_ids"].tolist() == [[101, 7592, 102]]


def test_a_bad_request_does_not_touch_the_others(tokenizer, pb_utils):
    fine = {"text": texts(b"a", b"b"), "document": numbers(0, 0)}
    requests = [
        pb_utils.Request(**fine),
        pb_utils.Request(text=texts(b"a")),
        pb_utils.Request(text=texts(b"a", b"b", b"c"), document=numbers(0, 1, 0)),
        pb_utils.Request(text=texts(b"a b c d", b"e f g"), document=numbers(0, 0)),
        pb_utils.Request({"truncate": "end"}, **fine),
        pb_utils.Request({"dimensions": 4, "output": "int8"}, **fine),
    ]
    responses = tokenizer.execute(requests)
    messages = [response.error and response.error.message() for response in responses]
    assert messages[0] is messages[-1] is None
    expected = ["document: the input is missing", "document[2]: 0 again", "text[0] to text[1]: 10 or more tokens"]
    expected += ['truncate: must be "none" for chunks']
    assert all(message.startswith(start) for message, start in zip(messages[1:-1], expected, strict=True))
    assert {response.error.code for response in responses[1:-1]} == {pb_utils.TritonError.INVALID_ARG}


def answer(model, request):
    returned = model.execute([request])
    return returned[0] if returned is not None else request.wait().responses[0]


def test_vectors_of_chunks(contextual, pb_utils):
    ids = np.array([[1, 2, 0], [9, 3, 0], [4, 5, 6]], dtype=np.int32)
    mask = np.array([[1, 1, 0], [3, 1, 0], [1, 1, 1]], dtype=np.int8)
    request = pb_utils.Request(input_ids=ids, attention_mask=mask, document=numbers(0, 0, 1))
    tensors = answer(contextual, request).tensors
    assert tensors["embedding"].shape == (3, 32)
    assert tensors["token_count"].tolist() == [[2], [1], [3]]
    alone = contextual._service.engine.embed_ids([ids[2]])
    np.testing.assert_allclose(tensors["embedding"][2:], alone, atol=1e-6)


def test_vectors_that_cannot_be(contextual, pb_utils):
    ids = np.ones((2, 1), dtype=np.int32)
    mask = np.ones((2, 1), dtype=np.int8)
    missing = answer(contextual, pb_utils.Request(input_ids=ids, attention_mask=mask))
    assert missing.error.message() == "document: the input is missing"
    wrong = answer(contextual, pb_utils.Request(input_ids=ids, attention_mask=mask, document=numbers(1)))
    assert wrong.error.message() == "document: the shape must be [2, 1], one number a row, got [1, 1]"
    assert wrong.error.code == pb_utils.TritonError.INVALID_ARG


def test_another_task_is_refused(load, arguments, tiny_checkpoint):
    model = load("contextual").TritonPythonModel()
    with pytest.raises(Exception, match="task: 'embed', but this model needs 'context'"):
        model.initialize(arguments(checkpoint=str(tiny_checkpoint), device="cpu"))
