import json
from typing import ClassVar

import pytest

from lazuli import checkpoint
from lazuli.checkpoint import DenseModule, load_checkpoint, resolve_checkpoint
from lazuli.errors import ConfigError

TRANSFORMER = {"type": "sentence_transformers.models.Transformer", "path": ""}
POOLING = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
DENSE = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}
IDENTITY = "torch.nn.modules.linear.Identity"
NORMALIZE = {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    write("config.json", {"architectures": ["BertModel"], "max_position_embeddings": 64})
    return write


def load(tmp_path):
    return load_checkpoint(str(tmp_path))


class TestResolve:
    def test_a_folder(self, tmp_path):
        assert resolve_checkpoint(str(tmp_path)) == tmp_path

    def test_the_home_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "model").mkdir()
        assert resolve_checkpoint("~/model") == tmp_path / "model"

    def test_a_packaged_checkpoint(self):
        assert (resolve_checkpoint("all-MiniLM-L6-v2") / "model.safetensors").is_file()

    def test_neither(self):
        with pytest.raises(ConfigError, match=r"'/no/such' is neither a folder .* \(all-MiniLM-L6-v2\)"):
            resolve_checkpoint("/no/such")

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(checkpoint.PACKAGED_CHECKPOINTS, "other", ("no_such_package", "model"))
        with pytest.raises(ConfigError, match="'other' needs the package no-such-package"):
            resolve_checkpoint("other")


class TestLimits:
    def test_without_a_word_the_positions_decide(self, tmp_path, write):
        assert (load(tmp_path).max_seq_length, load(tmp_path).max_positions) == (64, 64)

    @pytest.mark.parametrize(("declared", "expected"), [(32, 32), (64, 64), (512, 64), (None, 64)])
    def test_sentence_bert_config(self, tmp_path, write, declared, expected):
        write("sentence_bert_config.json", {"max_seq_length": declared, "do_lower_case": False})
        assert load(tmp_path).max_seq_length == expected

    @pytest.mark.parametrize(("declared", "expected"), [(32, 32), (512, 64), (10**30, 64), (None, 64)])
    def test_sentence_transformers_6_writes_it_into_the_tokenizers_file(self, tmp_path, write, declared, expected):
        write("sentence_bert_config.json", {"transformer_task": "feature-extraction"})
        write("tokenizer_config.json", {"model_max_length": declared})
        assert load(tmp_path).max_seq_length == expected

    def test_sentence_bert_config_comes_first(self, tmp_path, write):
        write("sentence_bert_config.json", {"max_seq_length": 16})
        write("tokenizer_config.json", {"model_max_length": 32})
        assert load(tmp_path).max_seq_length == 16

    @pytest.mark.parametrize("value", [None, "512"])
    def test_positions_are_needed(self, tmp_path, write, value):
        write("config.json", {"max_position_embeddings": value})
        with pytest.raises(ConfigError, match=r"config\.json: max_position_embeddings is missing"):
            load(tmp_path)


class TestModules:
    def test_a_plain_checkpoint_is_pooled_by_mean_and_not_normalised(self, tmp_path, write):
        assert (load(tmp_path).pooling, load(tmp_path).normalize) == ("mean", False)

    def test_normalisation_follows_the_modules(self, tmp_path, write):
        write("1_Pooling/config.json", {"pooling_mode_cls_token": True})
        write("modules.json", [TRANSFORMER, POOLING])
        assert not load(tmp_path).normalize
        write("modules.json", [TRANSFORMER, POOLING, NORMALIZE])
        assert load(tmp_path).normalize

    def test_they_are_kept_for_those_who_need_more(self, tmp_path, write):
        score = {"type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore", "path": "1_LogitScore"}
        write("modules.json", [TRANSFORMER, score])
        write("config_sentence_transformers.json", {"model_type": "CrossEncoder"})
        checkpoint = load(tmp_path)
        assert checkpoint.modules == (("Transformer", ""), ("LogitScore", "1_LogitScore"))
        assert checkpoint.sentence_transformers == {"model_type": "CrossEncoder"}

    @pytest.mark.parametrize(
        ("named", "architecture"),
        [(["BertModel", "Other"], "BertModel"), ("BertModel", "BertModel"), ([], "none"), (None, "none")],
    )
    def test_architecture(self, tmp_path, write, named, architecture):
        write("config.json", {"max_position_embeddings": 8, "architectures": named})
        assert load(tmp_path).architecture == architecture

    @pytest.mark.parametrize("name", ["LayerNorm", "CLIPModel"])
    def test_another_module_is_refused_by_name(self, tmp_path, write, name):
        write(
            "modules.json",
            [TRANSFORMER, POOLING, {"type": f"sentence_transformers.models.{name}", "path": "3"}],
        )
        with pytest.raises(ConfigError, match=f"the module {name} is not supported"):
            load(tmp_path)

    @pytest.mark.parametrize(
        "modules", [[TRANSFORMER, NORMALIZE, POOLING], [TRANSFORMER, POOLING, NORMALIZE, DENSE], [POOLING, TRANSFORMER]]
    )
    def test_another_order_is_refused(self, tmp_path, write, modules):
        write("modules.json", modules)
        with pytest.raises(ConfigError, match="this order of modules is not supported"):
            load(tmp_path)

    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({"pooling_mode_mean_tokens": True}, "mean"),
            ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
            ({"pooling_mode_lasttoken": True}, "last"),
            ({"pooling_mode": "mean"}, "mean"),
            ({"pooling_mode": "cls"}, "cls"),
            ({"pooling_mode": "lasttoken"}, "last"),
            ({"pooling_mode": "mean", "include_prompt": True}, "mean"),
        ],
    )
    def test_pooling(self, tmp_path, write, config, expected):
        write("modules.json", [TRANSFORMER, POOLING])
        write("1_Pooling/config.json", config)
        assert load(tmp_path).pooling == expected

    @pytest.mark.parametrize(
        ("config", "named"),
        [
            ({"pooling_mode_max_tokens": True}, "max"),
            ({"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
            ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len"),
            ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, r"cls \+ mean"),
            ({"pooling_mode": "max"}, "max"),
            ({}, "none"),
        ],
    )
    def test_other_pooling_is_refused_by_name(self, tmp_path, write, config, named):
        write("modules.json", [TRANSFORMER, POOLING])
        write("1_Pooling/config.json", config)
        with pytest.raises(ConfigError, match=rf"1_Pooling/config\.json: pooling {named} is not supported"):
            load(tmp_path)

    def test_leaving_the_prompt_out_of_the_pooling_is_refused(self, tmp_path, write):
        write("modules.json", [TRANSFORMER, POOLING])
        write("1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False})
        with pytest.raises(ConfigError, match="include_prompt=false is not supported"):
            load(tmp_path)


class TestDense:
    SIZES: ClassVar = {"in_features": 8, "out_features": 16, "bias": False}

    @pytest.fixture(autouse=True)
    def modules(self, write):
        write("modules.json", [TRANSFORMER, POOLING, DENSE, DENSE | {"path": "3_Dense"}, NORMALIZE])
        write("1_Pooling/config.json", {"pooling_mode": "mean"})
        write("3_Dense/config.json", {"in_features": 16, "out_features": 8, "activation_function": IDENTITY})

    @pytest.mark.parametrize(
        ("changes", "activation"),
        [
            ({"activation_function": IDENTITY}, "Identity"),
            ({"activation_function": "torch.nn.modules.activation.Tanh"}, "Tanh"),
            ({}, "Tanh"),
            ({"activation_function": IDENTITY, "module_input_name": "sentence_embedding"}, "Identity"),
        ],
    )
    def test_each_in_its_order(self, tmp_path, write, changes, activation):
        write("2_Dense/config.json", self.SIZES | changes)
        loaded = load(tmp_path)
        assert loaded.normalize
        assert loaded.dense == (
            DenseModule(tmp_path / "2_Dense", 8, 16, bias=False, activation=activation),
            DenseModule(tmp_path / "3_Dense", 16, 8, bias=True, activation="Identity"),
        )

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"in_features": None}, "in_features is missing"),
            ({"activation_function": "my.module.Tanh"}, "activation_function: 'my.module.Tanh' is not supported"),
            (
                {"activation_function": "torch.nn.modules.activation.Softmax"},
                r"Softmax' is not supported; .*: Identity, ",
            ),
            ({"module_input_name": "token_embeddings"}, "only layers from sentence_embedding"),
            ({"use_residual": True}, "only layers from sentence_embedding"),
        ],
    )
    def test_what_is_not_supported_is_refused(self, tmp_path, write, changes, message):
        write("2_Dense/config.json", self.SIZES | changes)
        with pytest.raises(ConfigError, match=rf"2_Dense/config\.json: .*{message}"):
            load(tmp_path)


class TestPrompts:
    def test_none(self, tmp_path, write):
        assert (load(tmp_path).prompts, load(tmp_path).default_prompt_name) == ({}, None)

    def test_those_of_sentence_transformers(self, tmp_path, write):
        write("config_sentence_transformers.json", {"prompts": {"query": "q: "}, "default_prompt_name": "query"})
        assert (load(tmp_path).prompts, load(tmp_path).default_prompt_name) == ({"query": "q: "}, "query")

    def test_null(self, tmp_path, write):
        write("config_sentence_transformers.json", {"prompts": None, "default_prompt_name": None})
        assert load(tmp_path).prompts == {}


class TestFiles:
    def test_config_json_is_needed(self, tmp_path):
        with pytest.raises(ConfigError, match=r"checkpoint: .*config\.json is missing"):
            load(tmp_path)

    def test_the_pooling_file_is_needed_where_modules_name_it(self, tmp_path, write):
        write("modules.json", [TRANSFORMER, POOLING])
        with pytest.raises(ConfigError, match=r"1_Pooling/config\.json is missing"):
            load(tmp_path)

    @pytest.mark.parametrize("name", ["config.json", "modules.json", "sentence_bert_config.json"])
    def test_malformed_json_is_named(self, tmp_path, write, name):
        write(name, "{")
        with pytest.raises(ConfigError, match=f"{name} is not valid JSON"):
            load(tmp_path)

    def test_bytes_that_are_no_text_are_named(self, tmp_path, write):
        (tmp_path / "modules.json").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match=r"modules\.json is not valid JSON"):
            load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", [], "config.json must hold an object"),
        ("sentence_bert_config.json", None, "sentence_bert_config.json must hold an object, not null"),
        ("modules.json", [{"a": 1}], "modules.json must be a list of objects with type and path"),
        ("modules.json", ["x"], "modules.json must be a list"),
        ("sentence_bert_config.json", {"max_seq_length": "256"}, "max_seq_length: '256' is not a number of tokens"),
        ("sentence_bert_config.json", {"max_seq_length": -5}, "max_seq_length: -5 is not"),
        ("sentence_bert_config.json", {"max_seq_length": 10.5}, "max_seq_length: 10.5 is not"),
        ("config_sentence_transformers.json", {"prompts": {"q": 5}}, "prompts must map names to texts"),
        ("config_sentence_transformers.json", {"prompts": ["q"]}, "prompts must map names to texts"),
    ],
)
def test_json_of_another_form_is_named(tmp_path, write, name, content, said):
    write(name, content if content is not None else "null")
    with pytest.raises(ConfigError, match=said):
        load(tmp_path)


def test_a_limit_that_means_none(tmp_path, write):
    write("tokenizer_config.json", {"model_max_length": 1e30})
    assert load(tmp_path).max_seq_length == 64


def test_minilm():
    loaded = load_checkpoint("all-MiniLM-L6-v2")
    assert (loaded.pooling, loaded.normalize, loaded.max_seq_length, loaded.max_positions) == (
        "mean",
        True,
        256,
        512,
    )
    assert loaded.model["architectures"] == ["BertModel"]
