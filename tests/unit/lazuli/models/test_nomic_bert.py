import json

import pytest
import torch

from lazuli.attention.base import AttentionShape
from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.models.nomic_bert import NomicBertConfig
from lazuli.models.registry import read_attention_shape, read_shape

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
}
SHAPES = {
    "plain": {},
    "one layer, one head": {"num_hidden_layers": 1, "num_attention_heads": 1},
    "odd sizes": {"hidden_size": 36, "intermediate_size": 50, "vocab_size": 91},
    "heads of another size": {"head_dim": 8},
    "gelu, large eps": {"hidden_act": "gelu", "layer_norm_eps": 1e-2},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
    "one token type": {"type_vocab_size": 1},
}
# As in the files that nomic-embed-text-v1 and v1.5 came with.
FIRST = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 16,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": 48,
    "n_head": 3,
    "n_inner": 80,
    "n_layer": 3,
    "n_positions": 64,
    "pad_vocab_size_multiple": 4,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "type_vocab_size": 2,
    "use_rms_norm": False,
    "vocab_size": 97,
}


def write_reference(folder, changes, architecture="NomicBertModel", *, first_tensors=False):
    import transformers

    torch.manual_seed(0)
    config = transformers.NomicBertConfig(**(SIZES | changes), attn_implementation="eager")
    model = getattr(transformers, architecture)(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder, save_original_format=first_tensors)
    return model


@pytest.mark.parametrize("first_tensors", [False, True])
@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_against_transformers(tmp_path, assert_equals_reference, changes, first_tensors):
    model = write_reference(tmp_path, changes, first_tensors=first_tensors)
    vocab_size = (SIZES | changes)["vocab_size"]
    assert_equals_reference(tmp_path, lambda ids: model(ids).last_hidden_state, vocab_size)


def test_with_the_head_of_a_language_model(tmp_path, assert_equals_reference):
    model = write_reference(tmp_path, {}, "NomicBertForMaskedLM")
    assert_equals_reference(tmp_path, lambda ids: model.nomic_bert(ids).last_hidden_state, SIZES["vocab_size"])


@pytest.mark.parametrize("both", [False, True])
def test_files_of_the_first_spelling(tmp_path, assert_equals_reference, both):
    """Its tensors are those that transformers writes in the original format."""
    model = write_reference(tmp_path, {}, first_tensors=True)
    other = json.loads((tmp_path / "config.json").read_text()) if both else {}
    (tmp_path / "config.json").write_text(json.dumps(other | FIRST))
    assert_equals_reference(tmp_path, lambda ids: model(ids).last_hidden_state, 97)


def test_sizes(tmp_path):
    write_reference(tmp_path, {"head_dim": 8})
    checkpoint = load_checkpoint(str(tmp_path))
    assert (checkpoint.max_positions, read_shape(checkpoint).max_positions) == (64, 64)
    assert read_attention_shape(checkpoint) == AttentionShape(3, 3, 8, causal=False, num_layers=3)


@pytest.mark.parametrize(("factor", "expected"), [(None, 64), (2, 16)])
def test_positions_where_angles_would_depend_on_the_length_are_cut(tmp_path, factor, expected):
    (tmp_path / "config.json").write_text(json.dumps(FIRST | {"rotary_scaling_factor": factor}))
    checkpoint = load_checkpoint(str(tmp_path))
    assert (checkpoint.max_positions, read_shape(checkpoint).max_positions) == (expected, expected)


class TestConfig:
    @pytest.mark.parametrize("first", [False, True])
    def test_both_spellings(self, first):
        native = SIZES | {"hidden_act": "silu", "layer_norm_eps": 1e-12, "rope_theta": 1000.0}
        config = NomicBertConfig.from_json(FIRST if first else native)
        assert config == NomicBertConfig(48, 3, 3, 16, 80, 100, 64, 2, "silu", 1e-12, 1000.0)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("activation_function", "gelu"),
            ("qkv_proj_bias", True),
            ("mlp_fc1_bias", True),
            ("rotary_emb_fraction", 0.5),
            ("rotary_emb_interleaved", True),
            ("rotary_emb_scale_base", 512),
            ("prenorm", True),
            ("parallel_block", True),
            ("use_rms_norm", True),
            ("causal", True),
        ],
    )
    def test_what_is_not_supported_is_refused(self, name, value):
        with pytest.raises(ConfigError, match=f"{name}: {value!r} is not supported"):
            NomicBertConfig.from_json(FIRST | {name: value})

    @pytest.mark.parametrize("name", ["activation_function", "qkv_proj_bias", "mlp_fc2_bias", "rotary_emb_fraction"])
    def test_what_the_first_code_would_take_for_a_missing_value_is_refused(self, name):
        with pytest.raises(ConfigError, match=f"{name}: .* is not supported"):
            NomicBertConfig.from_json({key: value for key, value in FIRST.items() if key != name})

    def test_spellings_that_contradict_each_other_are_refused(self):
        with pytest.raises(ConfigError, match="n_inner: 80 contradicts intermediate_size: 81"):
            NomicBertConfig.from_json(FIRST | {"intermediate_size": 81})

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hidden_act": "relu"}, "hidden_act: 'relu' is not supported"),
            ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 9.0}}, "rope_type: 'dynamic' is not supported"),
            ({"layer_norm_eps": None}, "layer_norm_eps is missing"),
        ],
    )
    def test_the_same_of_the_other_spelling(self, changes, message):
        native = SIZES | {"hidden_act": "silu", "layer_norm_eps": 1e-12, "rope_theta": 1000.0}
        with pytest.raises(ConfigError, match=message):
            NomicBertConfig.from_json(native | changes)

    @pytest.mark.parametrize("name", ["n_layer", "n_inner", "rotary_emb_base", "n_positions"])
    def test_a_missing_value_of_the_first_spelling_is_named(self, name):
        with pytest.raises(ConfigError, match=r"config\.json: \w+ is missing"):
            NomicBertConfig.from_json({key: value for key, value in FIRST.items() if key != name})
