"""Scores of an engine against `CrossEncoder.predict` of sentence-transformers, on what it saves."""

import numpy as np
import pytest
import torch

from lazuli.checkpoint import load_checkpoint
from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.heads.activation import activate
from lazuli.heads.head_config import read_head_config
from lazuli.heads.task import detect_task
from lazuli.segments import SEGMENT_BIT

PAIRS = [("a b c", "d e"), ("a", "f g h i j k l m n o p"), ("c c", "c"), ("z y x w", "a b")]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_tokenizer(folder, types):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    second = 1 if types else 0
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{second} [SEP]:{second}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names = names | {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]} if types else names
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


@pytest.mark.parametrize("activation", ["Identity", "Sigmoid"])
@pytest.mark.parametrize(
    "architecture", ["BertForSequenceClassification", "XLMRobertaForSequenceClassification"], ids=["bert", "xlm-r"]
)
def test_scores(tmp_path, write_head, architecture, activation):
    from sentence_transformers import CrossEncoder

    types = architecture.startswith("Bert")
    write_head(tmp_path / "plain", architecture, num_labels=1, pad_token_id=0)
    write_tokenizer(tmp_path / "plain", types)
    encoder = CrossEncoder(str(tmp_path / "plain"), device="cpu", activation_fn=getattr(torch.nn, activation)())
    folder = tmp_path / "saved"
    encoder.save_pretrained(str(folder))
    expected = encoder.predict(PAIRS, show_progress_bar=False)

    checkpoint = load_checkpoint(str(folder))
    assert detect_task(checkpoint) == "rerank"
    head = read_head_config(checkpoint, "rerank")
    engine = Engine(EngineConfig(checkpoint=str(folder), dtype="float32", task="rerank"), torch.device("cpu"))
    scores = activate(engine.embed_ids([row_of(encoder.tokenizer, pair, types) for pair in PAIRS]), head.activation)
    np.testing.assert_allclose(scores[:, 0], expected, rtol=0, atol=1e-6)
    assert np.ptp(expected) > 0.01


def row_of(tokenizer, pair, types):
    row = np.array(tokenizer(*pair)["input_ids"], dtype=np.int32)
    if types:
        row |= np.array(tokenizer(*pair)["token_type_ids"], dtype=np.int32) << SEGMENT_BIT
    return row
