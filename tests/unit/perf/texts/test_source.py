"""Texts of an exact number of tokens, with the tokenizers that are made for checkpoints of random weights."""

import json

import pytest
import tokenizers

from checkpoints.synthetic_tokenizer import ensure_tokenizer
from texts.source import TextSource, single_token_words

CONFIGS = {
    "qwen3": {"vocab_size": 4000, "num_key_value_heads": 8},
    "xlm-roberta": {"vocab_size": 4000, "model_type": "xlm-roberta"},
}
SPECIAL = {"qwen3": 1, "xlm-roberta": 2}


@pytest.fixture(params=CONFIGS)
def kind(request):
    return request.param


@pytest.fixture
def tokenizer(kind, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[kind]))
    return tokenizers.Tokenizer.from_file(str(ensure_tokenizer(tmp_path)))


def test_every_text_has_as_many_tokens_as_asked_for(tokenizer, kind):
    words, num_special = single_token_words(tokenizer)
    assert num_special == SPECIAL[kind]
    source = TextSource(words, num_special, seed=0)
    for length in (num_special + 1, 16, 513):
        for text in source.texts(5, length):
            assert len(tokenizer.encode(text).ids) == length


def test_ids_stay_within_the_vocabulary(tokenizer, kind):
    words, num_special = single_token_words(tokenizer)
    ids = [token for text in TextSource(words, num_special, 0).texts(50, 100) for token in tokenizer.encode(text).ids]
    assert max(ids) < CONFIGS[kind]["vocab_size"]
    assert len(set(ids)) > 100


def test_no_text_comes_twice_and_seeds_differ(tokenizer):
    words, num_special = single_token_words(tokenizer)
    texts = TextSource(words, num_special, 0).texts(50, 20) + TextSource(words, num_special, 1).texts(50, 20)
    assert len(set(texts)) == 100
    assert TextSource(words, num_special, 0).texts(50, 20) == texts[:50]


def test_no_room_for_a_word_is_refused(tokenizer):
    words, num_special = single_token_words(tokenizer)
    with pytest.raises(ValueError, match="no room"):
        TextSource(words, num_special, 0).texts(1, num_special)


def test_a_tokenizer_that_is_there_is_kept(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    assert ensure_tokenizer(tmp_path).read_text() == "{}"


def test_a_vocabulary_without_room_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 300}))
    with pytest.raises(ValueError, match="too small"):
        ensure_tokenizer(tmp_path)


def test_a_tokenizer_without_words_is_refused():
    with pytest.raises(ValueError, match="only 1 words"):
        single_token_words(tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, [])))
