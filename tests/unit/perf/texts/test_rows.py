"""What requests carry."""

import json

import pytest

from checkpoints.synthetic_tokenizer import ensure_tokenizer
from lazuli.checkpoint import resolve_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT
from texts.lengths import Lengths, exactly
from texts.rows import load_tokenizer, row_spec

REAL = ["a short one", "a text of some more words than the other has", ""]


@pytest.fixture(scope="module")
def tokenizer_file():
    return str(resolve_checkpoint(DEFAULT_CHECKPOINT) / "tokenizer.json")


def tokens(tokenizer_file, texts):
    return [len(load_tokenizer(tokenizer_file).encode(text).ids) for text in texts]


def test_texts_have_the_length_asked_for(tokenizer_file):
    rows = row_spec(tokenizer_file).open(0).rows(4, exactly(20))
    assert tokens(tokenizer_file, rows.texts) == [20] * 4
    assert rows.tokens == 80
    assert rows.ids is None


def test_texts_of_a_range_have_lengths_in_it_and_their_sum_is_told(tokenizer_file):
    rows = row_spec(tokenizer_file).open(0).rows(50, Lengths(5, 30))
    counts = tokens(tokenizer_file, rows.texts)
    assert sum(counts) == rows.tokens
    assert 5 <= min(counts) < 10 < 20 < max(counts) <= 30


def test_no_two_sources_give_the_same_and_each_gives_it_again(tokenizer_file):
    spec = row_spec(tokenizer_file)
    first, again, other = (spec.open(seed).rows(3, exactly(12)).texts for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)


def test_ids_are_those_of_the_texts(tokenizer_file):
    source = row_spec(tokenizer_file, REAL, with_ids=True).open(0)
    check_ids(tokenizer_file, source.rows(3, exactly(9)))
    check_ids(tokenizer_file, source.rows(3, Lengths(4, 100)))  # of real texts
    check_ids(tokenizer_file, row_spec(tokenizer_file, with_ids=True).open(0).rows(20, Lengths(4, 100)))


@pytest.mark.parametrize("config", [{"model_type": "xlm-roberta"}, {"model_type": "qwen3"}])
def test_ids_of_made_up_words_are_those_of_the_texts(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 5000}))
    file = str(ensure_tokenizer(tmp_path))
    check_ids(file, row_spec(file, with_ids=True).open(0).rows(20, exactly(40)))


def check_ids(tokenizer_file, rows):
    assert [ids.tolist() for ids in rows.ids] == [
        load_tokenizer(tokenizer_file).encode(text).ids for text in rows.texts
    ]


def test_real_texts_are_drawn_for_a_range_only(tokenizer_file):
    source = row_spec(tokenizer_file, REAL).open(0)
    rows = source.rows(40, Lengths(1, 100))
    assert set(rows.texts) == set(REAL[:2])  # the empty one is left out
    assert rows.tokens == sum(tokens(tokenizer_file, rows.texts))
    assert set(source.rows(40, Lengths(1, 6)).texts) == {REAL[0]}
    assert not set(source.rows(4, exactly(5)).texts) & set(REAL)


def test_a_range_without_any_real_text_is_refused(tokenizer_file):
    with pytest.raises(ValueError, match="no text of the file has 200-300 tokens"):
        row_spec(tokenizer_file, REAL).open(0).rows(1, Lengths(200, 300))
