"""What went wrong in other embedding servers, as black-box cases; each name says where it was reported."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from .conftest import MAX_SEQ_LENGTH, assert_same_vectors
from .wire import grpc_infer, grpc_stream, http_generate, http_infer


def words(count):
    """A text of `count` tokens, special ones included."""
    return " ".join(["word"] * (count - 2))


@pytest.mark.parametrize("count", [MAX_SEQ_LENGTH - 1, MAX_SEQ_LENGTH])
def test_vllm_29496_texts_up_to_the_limit_work(server, count):
    assert grpc_infer(server, [words(count)])[1].tolist() == [count]


def test_vllm_29496_one_token_more_is_refused_or_cut(server):
    text = words(MAX_SEQ_LENGTH + 1)
    with pytest.raises(InferenceServerException, match=r"text\[0\]: 257 tokens, but at most 256"):
        grpc_infer(server, [text])
    assert grpc_infer(server, [text], truncate="end")[1].tolist() == [MAX_SEQ_LENGTH]


@pytest.mark.parametrize("rows", [["short", "long"], ["long", "short"]])
def test_vllm_55427_the_long_row_is_named_in_either_order(server, rows):
    texts = [words(300) if row == "long" else "short" for row in rows]
    with pytest.raises(InferenceServerException, match=rf"text\[{rows.index('long')}\]"):
        grpc_stream(server, texts)


def test_tei_52_truncation_holds_for_every_row_and_door(server):
    texts = [words(300), "short", words(400)]
    results = [door(server, texts, truncate="end") for door in (grpc_infer, http_infer, grpc_stream, http_generate)]
    for vectors, counts in results:
        assert counts.tolist() == [MAX_SEQ_LENGTH, 3, MAX_SEQ_LENGTH]
        np.testing.assert_allclose(vectors, results[0][0], atol=1e-5)


def test_infinity_538_reduced_vectors_are_of_unit_length(server):
    vectors, _ = grpc_infer(server, ["some text"], dimensions=17, force_dimensions=True)
    assert np.linalg.norm(vectors) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("texts", [[""], ["a", ""], ["", "", "b"]])
def test_sglang_4988_an_empty_text_is_embedded(server, sentence_transformer, texts):
    assert_same_vectors(grpc_infer(server, texts)[0], sentence_transformer.encode(texts, show_progress_bar=False))


def test_litellm_29660_text_never_becomes_special_tokens(server):
    """`[SEP]` in a text is five characters of it, not the token that ends a sentence."""
    for special in ("[SEP]", "[CLS]", "[MASK]", "[PAD]", "[UNK]"):
        _, counts = grpc_infer(server, [f"hello {special} world"])
        assert counts[0] > len(["[CLS]", "hello", special, "world", "[SEP]"])
    assert grpc_infer(server, ["hello <|endoftext|> world"])[0].shape == (1, 384)


@pytest.mark.parametrize("text", ["nul \0 inside", "a line\r\nand another", "\0", "tab\tand\x0bmore", "\u202ertl"])
def test_bounty_challenge_218_control_characters_are_text(server, sentence_transformer, text):
    for door in (grpc_infer, http_infer, grpc_stream, http_generate):
        assert_same_vectors(door(server, [text])[0], sentence_transformer.encode([text], show_progress_bar=False))


def test_ollama_8713_no_part_of_an_answer_is_zero_or_anothers(server, reference):
    texts, expected = reference

    def client(number):
        rows = np.random.default_rng(number).integers(len(texts), size=5)
        assert_same_vectors(grpc_infer(server, [texts[row] for row in rows])[0], expected[rows])

    with ThreadPoolExecutor(16) as clients:
        list(clients.map(client, range(160)))


def test_tei_723_one_request_larger_than_the_token_budget(server, reference):
    """1024 rows are many times the CPU's budget of 2048 tokens."""
    texts, expected = reference
    rows = np.arange(1024) % len(texts)
    assert_same_vectors(grpc_infer(server, [texts[row] for row in rows])[0], expected[rows])


def test_a_very_long_text_is_refused_at_once_or_cut(server):
    text = "word " * 200_000
    with pytest.raises(InferenceServerException, match=r"text\[0\]: over \d+ tokens, but at most 256"):
        grpc_infer(server, [text])
    assert grpc_infer(server, [text], truncate="start")[1].tolist() == [MAX_SEQ_LENGTH]
