"""Requests of many long texts, which the tokenizers answer beside the others: each gets its own ids."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from .wire import text_input

CLIENTS = 12


def tokens(server, texts, **options):
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        result = client.infer("tokenizer", [text_input(triton_grpc, texts)], parameters=options)
        mask = result.as_numpy("attention_mask").astype(bool)
        return [row[kept].tolist() for row, kept in zip(result.as_numpy("input_ids"), mask, strict=True)]


def test_large_and_small_requests_at_once(server, reference):
    texts, _ = reference
    words = [" ".join(itertools.islice(itertools.cycle(texts[start:]), 60)) for start in range(64)]
    assert sum(map(len, words[:32])) > 10 * (32 << 10)  # far over the size from which they are slow
    expected = [tokens(server, [text], truncate="end")[0] for text in words]

    def client(number):
        rng = np.random.default_rng(number)
        for size in (48, 1, 64, 9, 2, 32):
            rows = rng.choice(len(words), size=size, replace=False)
            assert tokens(server, [words[row] for row in rows], truncate="end") == [expected[row] for row in rows]
        return number

    with ThreadPoolExecutor(CLIENTS) as clients:
        assert sorted(clients.map(client, range(CLIENTS))) == list(range(CLIENTS))


def test_a_mistake_in_a_large_request_is_told(server):
    texts = ["fine"] * 40 + ["far too long " * 3000]
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        for model in ("tokenizer", "embed"):
            with pytest.raises(triton_grpc.InferenceServerException, match=r"text\[40\]: over") as raised:
                client.infer(model, [text_input(triton_grpc, texts)])
            assert raised.value.status() == "StatusCode.INVALID_ARGUMENT"
