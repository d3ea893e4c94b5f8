import json

import pytest
import torch

from lazuli.errors import ConfigError
from lazuli.models.qwen3 import Qwen3Config

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 80,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
}
SHAPES = {
    "grouped heads": {},
    "every head its own": {"num_key_value_heads": 4},
    "one key head": {"num_key_value_heads": 1},
    "odd sizes": {"hidden_size": 36, "intermediate_size": 50, "num_attention_heads": 3, "num_key_value_heads": 3},
    "large eps": {"rms_norm_eps": 1e-2},
}


def write_reference(folder, architecture, changes):
    from transformers import Qwen3Config as ReferenceConfig
    from transformers import Qwen3Model

    torch.manual_seed(0)
    config = ReferenceConfig(**(SIZES | changes), attn_implementation="eager")
    model = Qwen3Model(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(saved | {"architectures": [architecture]}))
    return model


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("architecture", ["Qwen3Model", "Qwen3ForCausalLM"])
def test_causal_against_transformers(tmp_path, assert_equals_reference, architecture, changes):
    model = write_reference(tmp_path, architecture, changes)
    assert_equals_reference(tmp_path, lambda ids: model(ids).last_hidden_state, SIZES["vocab_size"])


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_bidirectional_against_transformers(tmp_path, assert_equals_reference, changes):
    model = write_reference(tmp_path, "PPLXQwen3Model", changes)

    def hidden(ids):
        nothing_masked = torch.zeros(1, 1, ids.shape[1], ids.shape[1])
        return model(ids, attention_mask={"full_attention": nothing_masked}).last_hidden_state

    assert_equals_reference(tmp_path, hidden, SIZES["vocab_size"])


class TestConfig:
    VALID = SIZES | {"rope_theta": 1e6, "hidden_act": "silu"}

    def test_the_file_can_say_that_it_is_bidirectional(self):
        assert Qwen3Config.from_json(self.VALID, causal=True).causal
        assert not Qwen3Config.from_json(self.VALID | {"is_causal": False}, causal=True).causal

    def test_theta_of_old_and_new_files(self):
        new = {name: value for name, value in self.VALID.items() if name != "rope_theta"}
        parameters = {"rope_theta": 5.0, "rope_type": "default"}
        assert Qwen3Config.from_json(self.VALID, causal=True).rope_theta == 1e6
        assert Qwen3Config.from_json(new | {"rope_parameters": parameters}, causal=True).rope_theta == 5.0
        with pytest.raises(ConfigError, match="rope_theta is missing"):
            Qwen3Config.from_json(new, causal=True)

    @pytest.mark.parametrize(
        ("name", "value"), [("hidden_act", "gelu"), ("attention_bias", True), ("use_sliding_window", True)]
    )
    def test_what_is_not_supported_is_refused(self, name, value):
        with pytest.raises(ConfigError, match=f"{name}: {value!r} is not supported"):
            Qwen3Config.from_json(self.VALID | {name: value}, causal=True)

    def test_scaled_angles_are_refused(self):
        with pytest.raises(ConfigError, match="rope_type: 'yarn' is not supported"):
            Qwen3Config.from_json(self.VALID | {"rope_scaling": {"rope_type": "yarn"}}, causal=True)

    @pytest.mark.parametrize("name", SIZES)
    def test_a_missing_value_is_named(self, name):
        values = {key: value for key, value in self.VALID.items() if key != name}
        with pytest.raises(ConfigError, match=f"{name} is missing"):
            Qwen3Config.from_json(values, causal=True)
