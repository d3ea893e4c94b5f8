import numpy as np

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
