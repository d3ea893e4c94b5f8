"""Pre-tokenised clients: `embedding` and `embedding_stream` take ids."""

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from .conftest import assert_same_vectors
from .wire import make_input


def infer(server, ids, mask, **options):
    inputs = [
        make_input(triton_grpc, "input_ids", ids, "INT32"),
        make_input(triton_grpc, "attention_mask", mask, "INT8"),
    ]
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        result = client.infer("embedding", inputs, parameters=options or None)
    return result.as_numpy("embedding"), result.as_numpy("token_count")[:, 0]


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_at_either_side(server, reference, sentence_transformer, side):
    texts, expected = reference[0][:30], reference[1][:30]
    tokenizer = sentence_transformer.tokenizer
    tokens = tokenizer(texts, padding=True, padding_side=side, return_tensors="np")
    ids, mask = tokens["input_ids"].astype(np.int32), tokens["attention_mask"].astype(np.int8)
    actual, counts = infer(server, ids, mask)
    assert_same_vectors(actual, expected)
    assert counts.tolist() == mask.sum(axis=1).tolist()


def test_ids_under_the_mask_do_not_matter(server):
    ids = np.array([[101, 7592, 102, 999_999]], dtype=np.int32)
    mask = np.array([[1, 1, 1, 0]], dtype=np.int8)
    np.testing.assert_array_equal(infer(server, ids, mask)[0], infer(server, ids[:, :3].copy(), mask[:, :3].copy())[0])


@pytest.mark.parametrize("length", [1, 511, 512])
def test_up_to_the_positions_of_the_model(server, length):
    ids, mask = np.full((1, length), 2003, dtype=np.int32), np.ones((1, length), dtype=np.int8)
    vectors, counts = infer(server, ids, mask)
    assert counts.tolist() == [length]
    assert np.linalg.norm(vectors) == pytest.approx(1, abs=1e-5)
