import numpy as np
import pytest

from lazuli_client.gateway.work.estimate import TokenEstimate
from lazuli_client.request import text_request, token_request


def test_it_learns_what_a_token_has():
    estimate = TokenEstimate()
    assert estimate.tokens_of_bytes(4000) == 1001
    for _ in range(500):
        estimate.learn(300, 200)
    assert abs(estimate.tokens_of_bytes(3000) - 2000) < 30


def test_ids_are_counted_and_texts_estimated():
    estimate = TokenEstimate()
    tokens = [np.arange(1, 4, dtype=np.int32), np.arange(1, 8, dtype=np.int32)]
    assert estimate.tokens_of(token_request("embedding", tokens, {}, range(2))) == 10
    assert estimate.tokens_of(text_request("embed", ["ü" * 40, "b" * 20], {}, range(2))) == 26


@pytest.mark.parametrize(("size", "tokens"), [(15_000_000, 2), (15_000_000, 5_000_000), (1_000_000, 2_000_000)])
def test_one_request_does_not_change_it_for_all_others(size, tokens):
    estimate = TokenEstimate()
    for _ in range(500):
        estimate.learn(400, 100)
    estimate.learn(size, tokens)
    assert 1.0 <= estimate.bytes_per_token <= 16.0
    for _ in range(200):
        estimate.learn(400, 100)
    assert estimate.bytes_per_token == pytest.approx(4.0, rel=0.1)


def test_spaces_for_ever_teach_a_number_that_texts_may_have():
    estimate = TokenEstimate()
    for _ in range(500):
        estimate.learn(15_000_000, 2)
    assert estimate.bytes_per_token == pytest.approx(16.0)
