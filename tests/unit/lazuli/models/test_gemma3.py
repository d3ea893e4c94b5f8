import json

import pytest
import torch

from lazuli.attention.base import AttentionShape
from lazuli.attention.sdpa import SdpaAttention
from lazuli.batch import RaggedBatch
from lazuli.checkpoint import load_checkpoint
from lazuli.cpu import host_inputs
from lazuli.errors import ConfigError
from lazuli.models.gemma3 import Gemma3Config
from lazuli.models.registry import load_model, read_attention_shape, read_shape

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 80,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "query_pre_attn_scalar": 16,
    "rms_norm_eps": 1e-6,
    "sliding_window": 16,
    "use_bidirectional_attention": True,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
SHAPES = {
    "local and global": {},
    "a window of an odd number": {"sliding_window": 7},
    "a window wider than the texts": {"sliding_window": 200},
    "each layer global": {"layer_types": ["full_attention"] * 3},
    "each layer local": {"layer_types": ["sliding_attention"] * 3},
    "grouped heads, odd sizes": {"num_key_value_heads": 2, "hidden_size": 36, "intermediate_size": 50},
    "scores of another scale": {"query_pre_attn_scalar": 5},
    "silu, large eps": {"hidden_activation": "silu", "rms_norm_eps": 1e-2},
    "gelu": {"hidden_activation": "gelu"},
    "other bases": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 50.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 7.0},
        }
    },
}


def write_reference(folder, changes):
    from transformers import Gemma3TextConfig, Gemma3TextModel

    torch.manual_seed(0)
    model = Gemma3TextModel(Gemma3TextConfig(**(SIZES | changes), attn_implementation="eager")).eval()
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


@pytest.mark.parametrize("name", ["sliding_window_pattern", "_sliding_window_pattern"])
def test_files_as_older_versions_wrote_them(tmp_path, assert_equals_reference, name):
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    thetas = {"full_attention": {"rope_theta": 90.0}, "sliding_attention": {"rope_theta": 30.0}}
    model = write_reference(tmp_path, {"layer_types": kinds, "rope_parameters": thetas})
    old = {name: 2, "rope_theta": 90.0, "rope_local_base_freq": 30.0}
    change_config(tmp_path, layer_types=None, rope_parameters=None, **old)
    assert_equals_reference(tmp_path, lambda ids: model(ids).last_hidden_state, SIZES["vocab_size"])


def test_bfloat16_follows_float32(tmp_path):
    write_reference(tmp_path, {})
    inputs = host_inputs(RaggedBatch.pack([torch.arange(40, dtype=torch.int32).numpy()], [True]))
    hidden = []
    for dtype in (torch.float32, torch.bfloat16):
        model = load_model(load_checkpoint(str(tmp_path)), SdpaAttention(), torch.device("cpu"), dtype)
        with torch.inference_mode():
            hidden.append(model.forward(inputs.input_ids, inputs.position_ids, inputs.attention))
    assert hidden[1].dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(hidden[0], hidden[1].float()).min() >= 0.99


def test_sizes(tmp_path):
    write_reference(tmp_path, {"sliding_window": 15})
    checkpoint = load_checkpoint(str(tmp_path))
    assert (checkpoint.max_positions, read_shape(checkpoint).max_positions) == (64, 64)
    # transformers writes an even number, which means the same.
    assert read_attention_shape(checkpoint) == AttentionShape(4, 1, 16, causal=False, num_layers=3, window=7)


class TestConfig:
    VALID = SIZES | {"hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1e6, "rope_local_base_freq": 1e4}

    def test_as_published(self):
        """What the `config.json` of EmbeddingGemma says of layers, in the form that it came in."""
        published = {name: value for name, value in self.VALID.items() if name != "layer_types"}
        published |= {
            "_sliding_window_pattern": 6,
            "num_hidden_layers": 12,
            "sliding_window": 512,
            "rope_scaling": None,
        }
        layers = Gemma3Config.from_json(published).layers
        assert [(layer.window, layer.theta) for layer in layers] == ([(256, 1e4)] * 5 + [(None, 1e6)]) * 2

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"use_bidirectional_attention": False}, "use_bidirectional_attention: False is not supported, only True"),
            ({"attention_bias": True}, "attention_bias: True is not supported"),
            ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: 50.0 is not supported"),
            ({"hidden_activation": "relu"}, "hidden_activation: 'relu' is not supported"),
            ({"layer_types": ["full_attention"]}, "layer_types: 1 entries, but num_hidden_layers is 3"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 8}}, "rope_type: 'linear' is not supported"),
        ],
    )
    def test_what_is_not_supported_is_refused(self, changes, message):
        with pytest.raises(ConfigError, match=message):
            Gemma3Config.from_json(self.VALID | changes)

    def test_a_causal_one_is_refused_though_it_does_not_say_so(self):
        values = {name: value for name, value in self.VALID.items() if name != "use_bidirectional_attention"}
        with pytest.raises(ConfigError, match="use_bidirectional_attention: False is not supported"):
            Gemma3Config.from_json(values)

    @pytest.mark.parametrize("name", ["head_dim", "query_pre_attn_scalar", "rope_theta", "rope_local_base_freq"])
    def test_a_missing_value_is_named(self, name):
        values = {key: value for key, value in self.VALID.items() if key != name}
        with pytest.raises(ConfigError, match=rf"config\.json: {name} is missing"):
            Gemma3Config.from_json(values)
