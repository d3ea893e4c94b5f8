"""The engine against the reference on tiny checkpoints, and the numbers that come of it."""

import json

import numpy as np
import pytest

pytest.importorskip("transformers")
import bench_accuracy
from bench_accuracy import compare, measure_stand, rows_of_ids
from checkpoints.families import BPE, STANDS, UNIGRAM, WORDPIECE, Stand, write_model
from checkpoints.reference import reference_outputs
from lazuli.checkpoint import load_checkpoint
from reporting.measurement import Accuracy, write

SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "vocab_size": 100,
    "max_position_embeddings": 66,
}
QWEN3 = {"head_dim": 16, "num_key_value_heads": 2}
# Ids of special tokens, which must be in the vocabulary.
MODERNBERT = {f"{name}_token_id": 1 for name in ("pad", "bos", "cls", "eos", "sep")}
MORE = {
    "Qwen3Config": QWEN3,
    "Gemma3TextConfig": QWEN3 | {"query_pre_attn_scalar": 16, "sliding_window": 8},
    "ModernBertConfig": MODERNBERT | {"local_attention": 8},
    "NomicBertConfig": {},
}


def tiny(stand, **changes):
    fields = {name: getattr(stand, name) for name in Stand.__dataclass_fields__}
    settings = dict(stand.settings) | SIZES | MORE.get(stand.config, {})
    dense = ((48, 96), (96, 48)) if stand.dense else ()
    return Stand(**(fields | {"settings": settings, "dense": dense} | changes))


class TestCompare:
    def test_vectors(self):
        expected = np.array([[1.0, 0], [0, 2], [3, 3]])
        numbers = compare(expected, np.array([[2.0, 0], [0, 1], [1, 0]]))
        assert numbers["min_cosine"] == pytest.approx(0.5**0.5)
        assert numbers["mean_cosine"] == pytest.approx((2 + 0.5**0.5) / 3)
        assert numbers["other_cosine"] == pytest.approx((0.5**0.5 + 0 + 0.5**0.5) / 3)

    def test_vectors_of_tokens(self):
        rows = [np.eye(3)[:2], np.eye(3)[2:]]
        assert compare(rows, rows)["min_cosine"] == 1.0
        assert compare(rows, [np.eye(3)[:2], np.eye(3)[:1]])["min_cosine"] == 0.0

    def test_scores(self):
        assert compare([[1.0], [3.0]], [[1.5], [2.75]]) == {"max_difference": 0.5, "spread": 1.0}


def test_ids_are_words_and_fit():
    rows = rows_of_ids(5000, 64)
    assert [len(row) for row in rows] == [min(length, 64) for length in bench_accuracy.LENGTHS]
    assert min(row.min() for row in rows) >= 1000
    assert max(row.max() for row in rows) < 5000


@pytest.mark.parametrize("name", STANDS)
def test_each_stand_equals_its_reference(tmp_path, monkeypatch, name):
    stand = tiny(STANDS[name])
    monkeypatch.setitem(STANDS, name, stand)
    if stand.kind == "Qwen3ForCausalLM":
        monkeypatch.setattr(bench_accuracy, "YES", 9)
        monkeypatch.setattr(bench_accuracy, "NO", 7)
        monkeypatch.setattr("checkpoints.reference.YES", 9)
        monkeypatch.setattr("checkpoints.reference.NO", 7)
    lines = list(measure_stand(name, tmp_path, 2))
    outputs = {line.output for line in lines}
    assert outputs == ({"vectors", "sparse", "multi"} if name == "BAAI/bge-m3" else outputs)
    assert {line.dtype for line in lines} == {"float32", "bfloat16"}
    for line in lines:
        exact = line.dtype == "float32"
        if line.output == "score":
            assert line.max_difference < (1e-5 if exact else 0.1)
            assert line.spread > 0
        else:
            assert line.min_cosine > (1 - 1e-6 if exact else 0.99)


def test_a_wrong_model_is_seen(tmp_path):
    """The same widths and other values."""
    stand = tiny(STANDS["sentence-transformers/all-mpnet-base-v2"])
    model = write_model(stand, tmp_path, 2)
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    (line, _) = bench_accuracy.measure("wrong", model, str(tmp_path), "")
    assert line.min_cosine < 0.999


def test_the_reference_keeps_the_rows_apart(tmp_path):
    model = write_model(tiny(STANDS["BAAI/bge-small-en-v1.5"]), tmp_path, 1)
    rows = rows_of_ids(100, 66)
    together = reference_outputs(model, load_checkpoint(str(tmp_path)), rows)["vectors"]
    alone = reference_outputs(model, load_checkpoint(str(tmp_path)), rows[3:4])["vectors"][0]
    np.testing.assert_array_equal(together[3], alone)


def test_every_stand_has_a_vocabulary_and_a_task():
    assert {stand.vocabulary for stand in STANDS.values()} == {WORDPIECE, BPE, UNIGRAM}
    assert {name for name, stand in STANDS.items() if stand.task == "rerank"} == {
        name for name in STANDS if "rerank" in name.lower() or name.startswith("cross-encoder/")
    }


def test_a_line_has_what_applies_and_where_it_comes_from(tmp_path):
    line = Accuracy("lazuli 1", "one", "float32", "a reference", "score", "3-400", 11, max_difference=1 / 3, spread=2.0)
    content = json.loads(write("box", "accuracy", [line], tmp_path).read_text())
    assert content["max_difference"] == pytest.approx(1 / 3, abs=1e-9)
    assert content["level"] == "engine"
    assert content["suite"] == "accuracy"
    assert {"machine", "torch", "commit"} <= set(content)
    assert "min_cosine" not in content
    assert line.summary() == "one score float32: max_difference=0.33333333, spread=2.00000000"
