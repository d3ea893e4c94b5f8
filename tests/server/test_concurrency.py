"""64 clients at once: every answer is the right one."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from .conftest import assert_same_vectors
from .wire import DOORS, stream_parts

CLIENTS = 64


@pytest.mark.parametrize("door", DOORS, ids=list(DOORS))
def test_64_clients_of_mixed_lengths(server, reference, door):
    texts, expected = reference

    def client(number):
        rng = np.random.default_rng(number)
        for size in (1, 7, 1):
            rows = rng.choice(len(texts), size=size, replace=False)
            actual, _ = DOORS[door](server, [texts[row] for row in rows])
            assert_same_vectors(actual, expected[rows])
        return number

    with ThreadPoolExecutor(CLIENTS) as clients:
        assert sorted(clients.map(client, range(CLIENTS))) == list(range(CLIENTS))


def test_many_requests_on_one_stream(server, reference):
    texts, expected = reference
    rng = np.random.default_rng(0)
    chosen = [rng.choice(len(texts), size=rng.integers(1, 12), replace=False) for _ in range(60)]
    answers = stream_parts(server, [([texts[row] for row in rows], {}) for rows in chosen])
    for rows, parts in zip(chosen, answers, strict=True):
        index = np.concatenate([part.as_numpy("index")[:, 0] for part in parts])
        vectors = np.concatenate([part.as_numpy("embedding") for part in parts])
        assert sorted(index.tolist()) == list(range(len(rows)))
        assert_same_vectors(vectors, expected[rows][index])


def test_a_large_streamed_request_comes_in_parts(server, reference):
    texts, expected = reference
    many = (texts * 4)[:1024]
    [parts] = stream_parts(server, [(many, {})])
    index = np.concatenate([part.as_numpy("index")[:, 0] for part in parts])
    assert len(parts) > 1
    assert sorted(index.tolist()) == list(range(len(many)))
    rows = np.arange(len(many)) % len(texts)
    assert_same_vectors(np.concatenate([part.as_numpy("embedding") for part in parts]), expected[rows[index]])


def test_options_of_concurrent_requests_do_not_mix(server, reference):
    texts, expected = reference

    def client(number):
        dimensions = 8 * (1 + number % 8)
        rows = [number % len(texts), (number * 7) % len(texts)]
        options = {"dimensions": dimensions, "force_dimensions": True}
        actual, _ = DOORS["grpc-infer"](server, [texts[row] for row in rows], **options)
        cut = expected[rows, :dimensions]
        assert_same_vectors(actual, cut / np.linalg.norm(cut, axis=1, keepdims=True))

    with ThreadPoolExecutor(32) as clients:
        list(clients.map(client, range(128)))
