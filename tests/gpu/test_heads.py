"""Heads and segments on a GPU: bfloat16 from eager passes and from graphs against float32 on the CPU."""

import json

import numpy as np
import pytest
import torch

from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.segments import SEGMENT_BIT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
VOCABULARY = 1000
SIZES = {
    "hidden_size": 384,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 514,
}
# Of each: its configuration, what it needs beside the sizes, and the task.
HEADS = {
    "BertForSequenceClassification": ("BertConfig", {"num_labels": 3}, "classify"),
    "XLMRobertaForSequenceClassification": ("XLMRobertaConfig", {"num_labels": 1, "pad_token_id": 1}, "rerank"),
    "ModernBertForSequenceClassification": (
        "ModernBertConfig",
        {"num_labels": 1, "classifier_pooling": "mean", "pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1}
        | {"eos_token_id": 2, "sep_token_id": 2},
        "rerank",
    ),
    "Qwen3ForCausalLM": (
        "Qwen3Config",
        {"num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True},
        "rerank",
    ),
}
LENGTHS = (1, 7, 16, 64, 65, 300, 500)


def write(folder, architecture):
    """Write a random checkpoint; `yes` and `no` are the tokens 7 and 8."""
    import transformers

    torch.manual_seed(0)
    name, special, task = HEADS[architecture]
    model = getattr(transformers, architecture)(getattr(transformers, name)(**SIZES, **special)).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.03 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    if architecture == "Qwen3ForCausalLM":
        (folder / "LogitScore").mkdir()
        (folder / "LogitScore" / "config.json").write_text(json.dumps({"true_token_id": 7, "false_token_id": 8}))
        modules = [{"type": "any.Transformer", "path": ""}, {"type": "any.LogitScore", "path": "LogitScore"}]
        (folder / "modules.json").write_text(json.dumps(modules))
    return str(folder), task


@pytest.fixture(scope="module", params=HEADS)
def checkpoint(request, tmp_path_factory):
    return write(tmp_path_factory.mktemp("heads"), request.param)


def rows_of(lengths, seed=0, segments=False):
    rng = np.random.default_rng(seed)
    rows = [rng.integers(10, VOCABULARY, size=length, dtype=np.int32) for length in lengths]
    if segments:
        rows = [row | ((np.arange(len(row)) > len(row) // 3).astype(np.int32) << SEGMENT_BIT) for row in rows]
    return rows


def assert_close(values, exact, tolerance):
    """In units of how much values differ between rows."""
    np.testing.assert_array_less(np.abs(values - exact).max(axis=0), tolerance * exact.std(axis=0))


def engine_of(checkpoint, device, **parameters):
    path, task = checkpoint
    return Engine(EngineConfig(checkpoint=path, task=task, **parameters), torch.device(device))


@pytest.mark.parametrize("segments", [False, True])
def test_values(checkpoint, segments):
    exact_engine = engine_of(checkpoint, "cpu", dtype="float32")
    if segments and exact_engine.num_segments == 1:
        pytest.skip("the model has no segments, so ids are never marked")
    rows = rows_of(LENGTHS, segments=segments)
    exact = exact_engine.embed_ids(rows)
    assert_close(engine_of(checkpoint, "cuda:0", dtype="float32").embed_ids(rows), exact, 0.01)
    engine = engine_of(checkpoint, "cuda:0", dtype="bfloat16", graph_capture="lazy")
    for _ in range(3):  # eager, captured, replayed
        assert_close(engine.embed_ids(rows), exact, 0.3)
        assert_close(np.concatenate([engine.embed_ids([row]) for row in rows]), exact, 0.3)


def test_a_graph_reads_the_segments_of_each_batch(tmp_path):
    engine = engine_of(write(tmp_path, "BertForSequenceClassification"), "cuda:0", graph_capture="lazy")
    plain, marked = rows_of((30, 31)), rows_of((30, 31), segments=True)
    expected = [engine.embed_ids(rows) for rows in (plain, marked)]
    assert np.abs(expected[0] - expected[1]).max() > 0.01
    for _ in range(3):
        for rows, values in zip((plain, marked), expected, strict=True):
            np.testing.assert_allclose(engine.embed_ids(rows), values, atol=0.02)
