import json

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors


def write_tokenizer(folder, vocab_size=100):
    """Words w0, w1, ... and the special tokens of BERT."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(vocab_size - 4))]
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """No test touches the user's models, nor takes over a setting of the user."""
    import os

    for name in [name for name in os.environ if name.startswith("LAZULI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture
def checkpoint(tmp_path, write_bert):
    """A whole one: random BERT of 32 dimensions and 64 positions, with a tokenizer and prompts."""
    folder = write_bert(tmp_path / "tiny")
    write_tokenizer(folder)
    prompts = {"prompts": {"query": "w1 ", "document": ""}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


@pytest.fixture
def write_classifier(tmp_path):
    """Write a random BERT with a head, as transformers does."""

    def write(name, **changes):
        from transformers import BertConfig, BertForSequenceClassification

        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
        config = BertConfig(**sizes, vocab_size=100, max_position_embeddings=64, **changes)
        folder = tmp_path / name
        BertForSequenceClassification(config).save_pretrained(folder)
        write_tokenizer(folder)
        return folder

    return write


@pytest.fixture
def reranker(write_classifier):
    return write_classifier("cross-encoder", num_labels=1)


@pytest.fixture
def classifier(write_classifier):
    return write_classifier("moods", id2label={0: "good", 1: "bad", 2: "neither"}, label2id={"good": 0})
