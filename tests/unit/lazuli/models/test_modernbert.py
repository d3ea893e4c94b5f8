import json

import pytest
import torch

from lazuli.attention.base import AttentionShape
from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.models.modernbert import ModernBertConfig
from lazuli.models.registry import read_attention_shape, read_shape

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "local_attention": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "cls_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
}
SHAPES = {
    "local and global": {},
    "a window of an odd number": {"local_attention": 7},
    "a window of one token": {"local_attention": 1},
    "a window wider than the texts": {"local_attention": 200},
    "each layer global": {"layer_types": ["full_attention"] * 4},
    "each layer local": {"layer_types": ["sliding_attention"] * 4},
    "one layer, one head": {"num_hidden_layers": 1, "num_attention_heads": 1},
    "biases everywhere": {"norm_bias": True, "attention_bias": True, "mlp_bias": True},
    "silu": {"hidden_activation": "silu"},
    "gelu of tanh, large eps": {"hidden_activation": "gelu_pytorch_tanh", "norm_eps": 1e-2},
    "other bases": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 50.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 7.0},
        }
    },
}


def write_reference(folder, changes, architecture="ModernBertModel"):
    import transformers

    torch.manual_seed(0)
    config = transformers.ModernBertConfig(**(SIZES | changes), attn_implementation="eager")
    model = getattr(transformers, architecture)(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if value is not None})
    )


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_against_transformers(tmp_path, assert_equals_reference, changes):
    model = write_reference(tmp_path, changes)
    assert_equals_reference(tmp_path, lambda ids: model(ids).last_hidden_state, SIZES["vocab_size"])


def test_with_the_head_of_a_language_model(tmp_path, assert_equals_reference):
    model = write_reference(tmp_path, {}, "ModernBertForMaskedLM")
    assert_equals_reference(tmp_path, lambda ids: model.model(ids).last_hidden_state, SIZES["vocab_size"])


@pytest.mark.parametrize("every", [1, 2, 3])
def test_files_as_older_versions_wrote_them(tmp_path, assert_equals_reference, every):
    """A rule in place of a list of layers, and the bases under their own names."""
    kinds = ["sliding_attention" if index % every else "full_attention" for index in range(4)]
    thetas = {"full_attention": {"rope_theta": 90.0}, "sliding_attention": {"rope_theta": 30.0}}
    model = write_reference(tmp_path, {"layer_types": kinds, "rope_parameters": thetas})
    old = {"global_attn_every_n_layers": every, "global_rope_theta": 90.0, "local_rope_theta": 30.0}
    change_config(tmp_path, layer_types=None, rope_parameters=None, **old)
    assert_equals_reference(tmp_path, lambda ids: model(ids).last_hidden_state, SIZES["vocab_size"])


def test_sizes(tmp_path):
    write_reference(tmp_path, {"local_attention": 15})
    checkpoint = load_checkpoint(str(tmp_path))
    assert (checkpoint.max_positions, read_shape(checkpoint).max_positions) == (64, 64)
    assert read_attention_shape(checkpoint) == AttentionShape(3, 3, 16, causal=False, num_layers=4, window=7)


class TestConfig:
    VALID = SIZES | {
        "hidden_activation": "gelu",
        "norm_eps": 1e-5,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
    }

    def test_every_third_layer_is_global_unless_said(self):
        assert [layer.window for layer in ModernBertConfig.from_json(self.VALID).layers] == [None, 8, 8, None]

    def test_without_local_layers_there_is_no_window(self):
        config = ModernBertConfig.from_json(self.VALID | {"global_attn_every_n_layers": 1})
        assert config.window is None

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hidden_activation": "relu"}, "hidden_activation: 'relu' is not supported, only silu, gelu, "),
            ({"layer_types": ["full_attention"] * 3}, "layer_types: 3 entries, but num_hidden_layers is 4"),
            (
                {"layer_types": ["full_attention"] * 3 + ["chunked_attention"]},
                "layer_types: 'chunked_attention' is not",
            ),
            ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling: rope_type: 'linear' is not supported"),
            (
                {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1.0}}},
                "rope_parameters: rope_type: 'yarn' is not supported",
            ),
        ],
    )
    def test_what_is_not_supported_is_refused(self, changes, message):
        with pytest.raises(ConfigError, match=message):
            ModernBertConfig.from_json(self.VALID | changes)

    @pytest.mark.parametrize(
        "name", ["hidden_size", "num_hidden_layers", "norm_eps", "global_rope_theta", "local_rope_theta"]
    )
    def test_a_missing_value_is_named(self, name):
        values = {key: value for key, value in self.VALID.items() if key != name}
        with pytest.raises(ConfigError, match=rf"config\.json: {name} is missing"):
            ModernBertConfig.from_json(values)
