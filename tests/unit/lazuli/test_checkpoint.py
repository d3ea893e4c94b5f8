import json

import pytest

from lazuli import checkpoint
from lazuli.checkpoint import load_checkpoint, resolve_checkpoint
from lazuli.errors import ConfigError

TRANSFORMER = {"type": "sentence_transformers.models.Transformer", "path": ""}
POOLING = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
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

    @pytest.mark.parametrize("name", ["Dense", "LayerNorm", "CLIPModel"])
    def test_another_module_is_refused_by_name(self, tmp_path, write, name):
        write(
            "modules.json",
            [TRANSFORMER, POOLING, {"type": f"sentence_transformers.models.{name}", "path": "3"}],
        )
        with pytest.raises(ConfigError, match=f"the module {name} is not supported"):
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


def test_minilm():
    loaded = load_checkpoint("all-MiniLM-L6-v2")
    assert (loaded.pooling, loaded.normalize, loaded.max_seq_length, loaded.max_positions) == (
        "mean",
        True,
        256,
        512,
    )
    assert loaded.model["architectures"] == ["BertModel"]
