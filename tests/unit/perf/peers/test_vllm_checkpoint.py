"""Checkpoints in vLLM's words."""

import json

import pytest

from lazuli.checkpoint import load_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT
from peers.vllm_checkpoint import vllm_checkpoint
from random_checkpoint import write_checkpoint


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))


def test_a_published_checkpoint_is_taken_as_it_is():
    found = load_checkpoint(DEFAULT_CHECKPOINT)
    assert vllm_checkpoint(found) == found.path


def test_one_in_newer_words_is_rewritten_around_the_same_weights(tmp_path):
    written = write_checkpoint("minilm", tmp_path / "minilm", layers=1)
    config = json.loads((written / "config.json").read_text())
    (written / "config.json").write_text(json.dumps({**config, "model_type": None}))
    (written / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (written / "tokenizer.json").write_text("{}")
    found = load_checkpoint(str(written))
    for _ in range(2):  # a second time over the first
        folder = vllm_checkpoint(found)
    assert folder != found.path
    assert (folder / "model.safetensors").resolve() == found.path / "model.safetensors"
    assert (folder / "tokenizer.json").exists()
    assert json.loads((folder / "config.json").read_text()) == {**found.model, "model_type": "bert"}
    assert json.loads((folder / "1_Pooling" / "config.json").read_text()) == {"pooling_mode_mean_tokens": True}
    kinds = [module["type"].rpartition(".")[2] for module in json.loads((folder / "modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    # And what it says then is what it said before.
    again = load_checkpoint(str(folder))
    assert (again.pooling, again.normalize, again.max_positions) == (
        found.pooling,
        found.normalize,
        found.max_positions,
    )


def test_a_model_that_looks_both_ways_says_so(tmp_path):
    found = load_checkpoint(DEFAULT_CHECKPOINT)
    config = {**found.model, "architectures": ["PPLXQwen3Model"]}
    found = found.__class__(**{**vars(found), "model": config})
    written = json.loads((vllm_checkpoint(found) / "config.json").read_text())
    assert written["architectures"] == ["Qwen3ForCausalLM"]
    assert written["is_causal"] is False


def test_a_made_one_needs_nothing_else(tmp_path):
    found = load_checkpoint(str(write_checkpoint("minilm", tmp_path, layers=1)))
    assert vllm_checkpoint(found) == found.path
