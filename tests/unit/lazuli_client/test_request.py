import numpy as np

from lazuli_client import EmbedOptions
from lazuli_client.request import text_requests, token_requests
from lazuli_client.settings import Settings


def test_batches_are_cut_and_their_ends_marked():
    settings = Settings(rows_per_request=2, model="m")
    batches = [["a", "b", "c"], "d", ["e", "f"]]
    requests = list(text_requests(settings, batches, EmbedOptions(truncate="end"), first_row=10))
    assert [list(request.rows) for request in requests] == [[10, 11], [12], [13], [14, 15]]
    assert [request.ends_batch for request in requests] == [False, True, True, True]
    assert {request.model for request in requests} == {"m"}
    assert requests[0].parameters == {"truncate": "end"}
    assert requests[0].tensors["text"].tolist() == [[b"a"], [b"b"]]


def test_an_empty_text_is_a_row():
    (request,) = text_requests(Settings(), [[""]], EmbedOptions())
    assert request.tensors["text"].shape == (1, 1)
    assert request.tensors["text"][0, 0] == b""


def test_characters_bound_a_request():
    requests = text_requests(Settings(chars_per_request=5), [["aaa", "bbb", "c"]], EmbedOptions())
    assert [list(request.rows) for request in requests] == [[0], [1, 2]]


def test_batches_are_read_lazily():
    read = []
    batches = (read.append(place) or [str(place)] for place in range(100))
    requests = text_requests(Settings(), batches, EmbedOptions())
    next(requests)
    assert read == [0]


def test_token_rows_are_padded_on_the_right():
    (request,) = token_requests(Settings(), [[5, 6, 7], [8]], EmbedOptions())
    assert request.model == "embedding"
    assert request.tensors["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert request.tensors["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert request.tensors["input_ids"].dtype == np.int32
    assert request.tensors["attention_mask"].dtype == np.int8


def test_token_rows_are_cut_into_requests():
    requests = list(token_requests(Settings(rows_per_request=2), [[1], [2], [3]], EmbedOptions()))
    assert [list(request.rows) for request in requests] == [[0, 1], [2]]
    assert [request.ends_batch for request in requests] == [False, True]
