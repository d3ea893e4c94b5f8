import json

import pytest
import torch

from lazuli.checkpoint import load_checkpoint
from lazuli.models.registry import read_shape

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 100,
    "max_position_embeddings": 66,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}


@pytest.fixture(params=["XLMRoberta", "Roberta"])
def reference(tmp_path, request):
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{request.param}Config")(**SIZES)
    model = getattr(transformers, f"{request.param}Model")(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    return model


def test_against_transformers(tmp_path, reference, assert_equals_reference):
    def hidden(ids):
        # Positions are passed: transformers skips the places of padding ids, which are plain ids in these rows.
        return reference(ids, position_ids=torch.arange(2, 2 + ids.shape[1]).unsqueeze(0)).last_hidden_state

    assert_equals_reference(tmp_path, hidden, SIZES["vocab_size"])


def test_positions_before_the_padding_id_are_no_positions(tmp_path, reference):
    checkpoint = load_checkpoint(str(tmp_path))
    assert checkpoint.max_positions == 64
    assert read_shape(checkpoint).max_positions == 64


def test_the_limit_counts_from_the_padding_id(tmp_path, reference):
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"pad_token_id": 5}))
    assert load_checkpoint(str(tmp_path)).max_positions == 60
