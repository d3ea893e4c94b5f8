"""SPLADE against the masked language models of transformers, pooled by sentence-transformers."""

import json

import numpy as np
import pytest
import torch

from lazuli.errors import ConfigError, NonFiniteError, OptionError
from lazuli.options import RequestOptions
from lazuli.tokenwise import sparse_head
from lazuli.tokenwise.probe import run_pairs, run_tokens

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 100,
    "max_position_embeddings": 66,
}
LENGTHS = (2, 7, 7, 33, 62, 3)


def models():
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        ModernBertConfig,
        ModernBertForMaskedLM,
        MPNetConfig,
        MPNetForMaskedLM,
        RobertaConfig,
        RobertaForMaskedLM,
        XLMRobertaConfig,
        XLMRobertaForMaskedLM,
    )

    modern = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    return {
        "bert": lambda: BertForMaskedLM(BertConfig(**SIZES)),
        "bert_untied": lambda: BertForMaskedLM(BertConfig(**SIZES, tie_word_embeddings=False)),
        "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES)),
        "xlm_roberta": lambda: XLMRobertaForMaskedLM(XLMRobertaConfig(**SIZES)),
        "mpnet": lambda: MPNetForMaskedLM(MPNetConfig(**SIZES)),
        "modernbert": lambda: ModernBertForMaskedLM(ModernBertConfig(**SIZES, **modern)),
    }


FAMILIES = ("bert", "bert_untied", "roberta", "xlm_roberta", "mpnet", "modernbert")


@pytest.fixture
def write(tmp_path):
    def write(family="bert", **pooling):
        torch.manual_seed(0)
        model = models()[family]().eval()
        for parameter in model.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(tmp_path)
        types = ("sparse_encoder.models.MLMTransformer", "sparse_encoder.models.SpladePooling")
        entries = [
            {"type": f"sentence_transformers.{name}", "path": path}
            for name, path in zip(types, ("", "1_SpladePooling"), strict=True)
        ]
        (tmp_path / "modules.json").write_text(json.dumps(entries))
        (tmp_path / "1_SpladePooling").mkdir()
        (tmp_path / "1_SpladePooling" / "config.json").write_text(json.dumps({"pooling_strategy": "max"} | pooling))
        return tmp_path, model

    return write


@torch.inference_mode()
def by_reference(model, ids, activation="relu"):
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    tokens = torch.from_numpy(ids).long().unsqueeze(0)
    extra = {}
    if "oberta" in type(model).__name__ or "MPNet" in type(model).__name__:
        extra = {"position_ids": torch.arange(2, 2 + len(ids)).unsqueeze(0)}
    logits = model(tokens, attention_mask=torch.ones_like(tokens), **extra).logits
    pooling = SpladePooling("max", activation_function=activation).eval()
    return pooling({"token_embeddings": logits, "attention_mask": torch.ones_like(tokens)})["sentence_embedding"][0]


def as_rows(outputs, vocab_size=100):
    rows = np.zeros((len(outputs["sparse_ids"]), vocab_size), dtype=np.float32)
    for row, ids, weights in zip(rows, outputs["sparse_ids"], outputs["sparse_weights"], strict=True):
        row[ids[ids >= 0]] = weights[ids >= 0]
    return rows


def sparse_of(engine, rows):
    return as_rows(run_tokens(engine.run, rows, engine.answers.choose(RequestOptions(output=("sparse",)))))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("most_logits", [300, 1 << 25])
def test_against_the_reference(write, make_engine, rows_of, family, most_logits, monkeypatch):
    """Also where the tokens of a text come in pieces, three at a time."""
    monkeypatch.setattr(sparse_head, "_MOST_LOGITS", most_logits)
    folder, model = write(family)
    rows = rows_of(*LENGTHS)
    weights = sparse_of(make_engine(folder), rows)
    expected = np.stack([by_reference(model, ids).numpy() for ids in rows])
    np.testing.assert_allclose(weights, expected, atol=2e-5)
    assert (expected == 0).any()
    assert (expected > 0.1).any()


def test_the_logarithm_twice(write, make_engine, rows_of):
    folder, model = write(activation_function="log1p_relu")
    expected = by_reference(model, rows_of(9)[0], "log1p_relu").numpy()
    np.testing.assert_allclose(sparse_of(make_engine(folder), rows_of(9))[0], expected, atol=1e-5)


def test_a_text_alone_is_equal_to_the_same_in_a_batch(write, make_engine, rows_of):
    engine, rows = make_engine(write()[0]), rows_of(*LENGTHS)
    for weights, ids in zip(sparse_of(engine, rows), rows, strict=True):
        np.testing.assert_allclose(weights, sparse_of(engine, [ids])[0], atol=1e-6)


def test_weights_are_what_a_request_gets_that_does_not_say(write, make_engine):
    engine = make_engine(write()[0])
    assert engine.answers.choose(RequestOptions()).wanted == {"sparse"}
    with pytest.raises(OptionError, match="output: dense: the model has no such output, it has sparse"):
        engine.answers.choose(RequestOptions(output=("float32",)))


def test_scores(write, make_engine, rows_of):
    folder, model = write()
    pairs = list(zip(rows_of(5, 9, 5, seed=1), rows_of(33, 5, 62, seed=2), strict=True))
    scores = run_pairs(make_engine(folder, task="rerank").run, pairs)
    expected = [[float(by_reference(model, query) @ by_reference(model, document))] for query, document in pairs]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_it_is_warmed_up(write, make_engine):
    make_engine(write()[0]).warm_up()


def test_what_is_not_finite_names_the_row(write, make_engine, rows_of):
    engine = make_engine(write()[0])
    engine._encoder._model.embedding.tokens[77] = float("nan")
    rows = [*rows_of(5, 9), np.array([0, 77, 2], dtype=np.int32)]
    with pytest.raises(NonFiniteError, match=r"sparse_weights\[2\]: the model computed NaN"):
        sparse_of(engine, rows)


@pytest.mark.parametrize(("name", "value"), [("pooling_strategy", "sum"), ("activation_function", "gelu")])
def test_what_is_not_supported_is_refused_by_name(write, make_engine, name, value):
    with pytest.raises(ConfigError, match=f"{name}: '{value}' is not supported"):
        make_engine(write(**{name: value})[0])


def test_a_model_without_such_a_head(write, make_engine):
    folder, _ = write()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    with pytest.raises(ConfigError, match="BertModel has no head for SPLADE that is known"):
        make_engine(folder)


def test_a_model_in_bfloat16_with_a_head_in_float32(write, make_engine, rows_of, monkeypatch):
    """As on a CPU that computes in bfloat16 by itself."""
    folder, model = write()
    monkeypatch.setattr("lazuli.precision.has_amx_bf16", lambda: True)
    monkeypatch.setattr("lazuli.precision.MIN_COSINE", 0.9)
    engine = make_engine(folder, dtype=None)
    assert engine._encoder._model.embedding.tokens.dtype == torch.bfloat16
    expected = by_reference(model, rows_of(9)[0]).numpy()
    np.testing.assert_allclose(sparse_of(engine, rows_of(9))[0], expected, atol=0.1)


def test_texts_are_not_split_even_where_nothing_is_asked_for(write, make_engine):
    answers = make_engine(write()[0]).answers
    with pytest.raises(OptionError) as caught:
        answers.choose(RequestOptions(truncate="split"))
    assert str(caught.value) == 'truncate: "split" is for dense vectors only; output is sparse'
