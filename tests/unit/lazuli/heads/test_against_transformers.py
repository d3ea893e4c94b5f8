"""Engines with heads against the classes of `transformers` that wrote their checkpoints."""

import numpy as np
import pytest
import torch

from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.segments import SEGMENT_BIT

CPU = torch.device("cpu")
LENGTHS = (1, 2, 7, 7, 33, 61)
CLASSIFIERS = {
    "bert": ("BertForSequenceClassification", {}),
    "bert, one type": ("BertForSequenceClassification", {"type_vocab_size": 1}),
    "xlm-r": ("XLMRobertaForSequenceClassification", {}),
    "roberta": ("RobertaForSequenceClassification", {}),
    "mpnet": ("MPNetForSequenceClassification", {}),
    "modernbert": ("ModernBertForSequenceClassification", {}),
    "modernbert, mean": ("ModernBertForSequenceClassification", {"classifier_pooling": "mean"}),
    "modernbert, biases": (
        "ModernBertForSequenceClassification",
        {"classifier_bias": True, "norm_bias": True, "classifier_activation": "silu"},
    ),
    "qwen3": ("Qwen3ForSequenceClassification", {}),
}


def rows_of(lengths=LENGTHS, lowest=5, vocab_size=100):
    """Ids from 5 on: padding ids count for nothing in some of the references, and are plain ids here."""
    rng = np.random.default_rng(1)
    return [rng.integers(lowest, vocab_size, size=length, dtype=np.int32) for length in lengths]


def engine_of(folder, task):
    return Engine(EngineConfig(checkpoint=str(folder), dtype="float32", task=task), CPU)


def logits_of(engine, rows):
    return engine.embed_ids(rows, normalize=False)


@torch.inference_mode()
def expected_of(model, rows, types=None):
    logits = []
    for place, row in enumerate(rows):
        more = {} if types is None else {"token_type_ids": torch.from_numpy(types[place])[None]}
        logits.append(model(torch.from_numpy(row).long()[None], **more).logits[0])
    return torch.stack(logits).numpy()


@pytest.mark.parametrize("num_labels", [1, 2, 5])
@pytest.mark.parametrize(("architecture", "changes"), CLASSIFIERS.values(), ids=CLASSIFIERS.keys())
def test_logits(tmp_path, write_head, architecture, changes, num_labels):
    model = write_head(tmp_path, architecture, num_labels=num_labels, **changes)
    engine, rows = engine_of(tmp_path, "rerank" if num_labels == 1 else "classify"), rows_of()
    expected = expected_of(model, rows)
    logits = logits_of(engine, rows)
    assert engine.dimension == num_labels
    assert logits.shape == (len(rows), num_labels)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
    assert expected.std(axis=0).min() > 0.1, "rows that hardly differ show nothing"
    alone = np.concatenate([logits_of(engine, [row]) for row in rows])
    np.testing.assert_allclose(alone, logits, rtol=0, atol=1e-5)
    if num_labels > 1:
        cosine = (logits * expected).sum(1) / np.linalg.norm(logits, axis=1) / np.linalg.norm(expected, axis=1)
        assert cosine.min() >= 1 - 1e-6


def test_many_rows_of_one_batch(tmp_path, write_head):
    """From 1024 tokens on, the last layer computes only the tokens that pooling looks at."""
    model = write_head(tmp_path, "BertForSequenceClassification", num_labels=3)
    rows = rows_of(LENGTHS * 12)
    assert sum(map(len, rows)) > 1024
    np.testing.assert_allclose(
        logits_of(engine_of(tmp_path, "classify"), rows), expected_of(model, rows), rtol=0, atol=1e-5
    )


def test_segments_of_bert(tmp_path, write_head):
    model = write_head(tmp_path, "BertForSequenceClassification", num_labels=1)
    engine, rows = engine_of(tmp_path, "rerank"), rows_of()
    types = [(np.arange(len(row)) >= len(row) // 3).astype(np.int64) for row in rows]
    marked = [row | (kind.astype(np.int32) << SEGMENT_BIT) for row, kind in zip(rows, types, strict=True)]
    logits = logits_of(engine, marked)
    np.testing.assert_allclose(logits, expected_of(model, rows, types), rtol=0, atol=1e-5)
    assert np.abs(logits - logits_of(engine, rows)).max() > 0.01
    assert engine.num_segments == 2


class TestAnswersOfALanguageModel:
    """Qwen3-Reranker: the logit of `yes` less that of `no`, behind the last token."""

    WORDS = ("?", "a", "no", "b", "yes")

    @pytest.fixture(params=[False, True], ids=["own head", "tied head"])
    def model(self, tmp_path, write_head, write_tokenizer, request):
        write_tokenizer(tmp_path, self.WORDS)
        return write_head(tmp_path, "Qwen3ForCausalLM", tie_word_embeddings=request.param)

    def test_logits(self, tmp_path, model):
        rows = rows_of()
        logits = np.stack([both[-1] for both in self.expected(model, rows)])
        mine = logits_of(engine_of(tmp_path, "rerank"), rows)
        np.testing.assert_allclose(mine[:, 0], logits[:, 4] - logits[:, 2], rtol=0, atol=1e-5)
        assert mine.std() > 0.1

    @staticmethod
    @torch.inference_mode()
    def expected(model, rows):
        return [model(torch.from_numpy(row).long()[None]).logits[0].numpy() for row in rows]
