"""The client library against the live server: every way in, and the errors that come back typed."""

import asyncio
import threading

import numpy as np
import pytest

from lazuli_client import (
    AsyncLazuliClient,
    ConnectionFailedError,
    InvalidInputError,
    LazuliClient,
)

from .conftest import assert_same_vectors

PROTOCOLS = ("grpc", "http")


def address(server, protocol):
    return server.grpc if protocol == "grpc" else server.http


@pytest.fixture(params=PROTOCOLS)
def client(request, server):
    with LazuliClient(address(server, request.param), protocol=request.param, rows_per_request=16) as client:
        yield client


def test_many_texts_in_their_order(client, reference):
    texts, expected = reference
    result = client.embed(texts)
    assert_same_vectors(result.embeddings, expected)
    assert not result.truncated.any()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_asyncio(server, reference, protocol):
    texts, expected = reference

    async def run():
        async with AsyncLazuliClient(address(server, protocol), protocol=protocol, rows_per_request=16) as client:
            whole, *single = await asyncio.gather(client.embed(texts), *(client.embed(text) for text in texts[:20]))
            return whole.embeddings, np.concatenate([one.embeddings for one in single])

    whole, single = asyncio.run(run())
    assert_same_vectors(whole, expected)
    assert_same_vectors(single, expected[:20])


def test_streams_each_row_once(server, reference):
    texts, expected = reference
    with LazuliClient(server.grpc, rows_per_request=16) as client:
        parts = list(client.embed_iter(iter(texts)))
    indices = np.concatenate([part.indices for part in parts])
    assert sorted(indices.tolist()) == list(range(len(texts)))
    assert_same_vectors(np.concatenate([part.embeddings for part in parts]), expected[indices])


def test_streams_in_asyncio(server, reference):
    texts, expected = reference

    async def run():
        async with AsyncLazuliClient(server.grpc) as client:
            return [part async for part in client.embed_iter(texts)]

    parts = asyncio.run(run())
    indices = np.concatenate([part.indices for part in parts])
    assert_same_vectors(np.concatenate([part.embeddings for part in parts]), expected[indices])


def test_a_stream_that_is_left_early_does_no_harm(server, reference):
    texts, expected = reference
    with LazuliClient(server.grpc, rows_per_request=8) as client:
        for part in client.embed_iter(texts * 3):
            assert part.embeddings.shape[1] == 384
            break
        assert_same_vectors(client.embed(texts[:5]).embeddings, expected[:5])


def test_tokens(client, reference, sentence_transformer):
    texts, expected = reference[0][:40], reference[1][:40]
    assert_same_vectors(client.embed_tokens(sentence_transformer.tokenizer(texts)["input_ids"]).embeddings, expected)


def test_options(client, sentence_transformer):
    long = "word " * 400
    result = client.embed(["short", long], truncate="end", dimensions=32, force_dimensions=True, instruction="query: ")
    assert result.embeddings.shape == (2, 32)
    assert result.truncated.tolist() == [False, True]
    assert result.token_counts.tolist() == [5, 256]
    whole = sentence_transformer.encode(["query: short"], show_progress_bar=False)[:, :32]
    assert_same_vectors(result.embeddings[:1], whole / np.linalg.norm(whole))


def test_an_error_names_the_row_of_the_callers_list(client):
    texts = ["fine"] * 40
    texts[37] = "word " * 300
    with pytest.raises(InvalidInputError, match=r"text\[37\]") as caught:
        client.embed(texts)
    assert caught.value.row == 37


def test_an_unknown_prompt(client):
    with pytest.raises(InvalidInputError, match="prompt_name"):
        client.embed(["a"], prompt_name="nope")


def test_several_threads_share_a_client(client, reference):
    texts, expected = reference
    failures = []

    def work(start):
        rows = range(start, start + 20)
        try:
            assert_same_vectors(client.embed([texts[row] for row in rows]).embeddings, expected[list(rows)])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 120, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_listens(protocol):
    with LazuliClient("127.0.0.1:1", protocol=protocol, retries=0) as client, pytest.raises(ConnectionFailedError):
        client.embed(["a"])


def test_health(client):
    health = client.health()
    assert health.is_ready
    assert health.error is None
