import json

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """No test touches the user's models, nor takes over a setting of the user."""
    import os

    for name in [name for name in os.environ if name.startswith("LAZULI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture
def checkpoint(tmp_path, write_bert, write_tokenizer):
    """A whole one: random BERT of 32 dimensions and 64 positions, with a tokenizer and prompts."""
    folder = write_bert(tmp_path / "tiny")
    write_tokenizer(folder)
    prompts = {"prompts": {"query": "w1 ", "document": ""}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


@pytest.fixture
def classifier(write_classifier):
    return write_classifier("moods", id2label={0: "good", 1: "bad", 2: "neither"}, label2id={"good": 0})
