import json

import pytest
import torch

from lazuli.attention.base import AttentionShape
from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.models.mpnet import find_buckets, read_config
from lazuli.models.registry import read_attention_shape, read_shape

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "vocab_size": 100,
    "max_position_embeddings": 66,
    "layer_norm_eps": 1e-5,
}
SHAPES = {
    "plain": {},
    "one layer, one head": {"num_hidden_layers": 1, "num_attention_heads": 1},
    "odd sizes": {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 50, "vocab_size": 91},
    "relu, another eps": {"hidden_act": "relu", "layer_norm_eps": 1e-2},
    "a padding id that does not count": {"pad_token_id": 5},
}


def write_reference(folder, changes, architecture="MPNetModel"):
    import transformers

    torch.manual_seed(0)
    config = transformers.MPNetConfig(**(SIZES | changes))
    model = getattr(transformers, architecture)(config).eval()
    for name, parameter in model.named_parameters():
        parameter.data.add_((1.0 if "relative" in name else 0.1) * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def hidden_of(model):
    # Positions are passed: transformers skips the places of padding ids, which are plain ids in these rows.
    return lambda ids: model(ids, position_ids=torch.arange(2, 2 + ids.shape[1]).unsqueeze(0)).last_hidden_state


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_against_transformers(tmp_path, assert_equals_reference, changes):
    model = write_reference(tmp_path, changes)
    assert_equals_reference(tmp_path, hidden_of(model), (SIZES | changes)["vocab_size"])


def test_with_the_head_of_a_language_model(tmp_path, assert_equals_reference):
    model = write_reference(tmp_path, {}, "MPNetForMaskedLM")
    assert_equals_reference(tmp_path, hidden_of(model.mpnet), SIZES["vocab_size"])


def test_texts_longer_than_the_buckets_reach(tmp_path, assert_equals_reference):
    model = write_reference(tmp_path, {"max_position_embeddings": 402})
    assert_equals_reference(tmp_path, hidden_of(model), SIZES["vocab_size"], lengths=(127, 128, 129, 400))


def test_buckets_against_transformers():
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = torch.arange(-600, 601)
    assert torch.equal(find_buckets(distances), MPNetEncoder.relative_position_bucket(distances))
    assert torch.equal(find_buckets(distances), find_buckets(distances.clamp(-128, 128)))


@pytest.mark.parametrize("padding", [1, 5])
def test_sizes(tmp_path, padding):
    write_reference(tmp_path, {"pad_token_id": padding})
    checkpoint = load_checkpoint(str(tmp_path))
    assert (checkpoint.max_positions, read_shape(checkpoint).max_positions) == (64, 64)
    assert read_attention_shape(checkpoint) == AttentionShape(4, 4, 12, causal=False, num_layers=3, biased=True)


class TestConfig:
    VALID = SIZES | {"hidden_act": "gelu"}

    @pytest.mark.parametrize("name", VALID)
    def test_a_missing_value_is_named(self, name):
        with pytest.raises(ConfigError, match=rf"config\.json: {name} is missing"):
            read_config({key: value for key, value in self.VALID.items() if key != name})

    def test_other_buckets_are_refused(self):
        with pytest.raises(ConfigError, match="relative_attention_num_buckets: 16 is not supported, only 32 is"):
            read_config(self.VALID | {"relative_attention_num_buckets": 16})

    def test_another_activation_is_refused(self, tmp_path, assert_equals_reference):
        write_reference(tmp_path, {})
        saved = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(saved | {"hidden_act": "silu"}))
        with pytest.raises(ConfigError, match="hidden_act: 'silu'"):
            assert_equals_reference(tmp_path, None, SIZES["vocab_size"])
