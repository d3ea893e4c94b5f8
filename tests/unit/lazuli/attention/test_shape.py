from types import SimpleNamespace

import pytest

from lazuli.attention.base import AttentionShape
from lazuli.models.registry import read_attention_shape

BERT = {
    "architectures": ["BertModel"],
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
QWEN = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
}


def read(model):
    return read_attention_shape(SimpleNamespace(path="there", architecture=model["architectures"][0], model=model))


def test_bert_has_as_many_key_heads_as_heads():
    assert read(BERT) == AttentionShape(6, 6, 8, causal=False, num_layers=3)


@pytest.mark.parametrize(("architecture", "causal"), [("Qwen3Model", True), ("PPLXQwen3Model", False)])
def test_qwen3_shares_key_heads(architecture, causal):
    assert read(QWEN | {"architectures": [architecture]}) == AttentionShape(4, 2, 16, causal=causal, num_layers=2)
