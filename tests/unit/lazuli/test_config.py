import dataclasses
import inspect

import pytest

from lazuli import config
from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.errors import ConfigError


class TestEngineConfig:
    def test_defaults(self):
        parsed = EngineConfig.from_parameters({})
        assert parsed == EngineConfig()
        assert parsed.checkpoint == "all-MiniLM-L6-v2"
        assert parsed.token_budget is None

    def test_from_parameters(self):
        parsed = EngineConfig.from_parameters({"device": "cuda:1", "token_budget": "99", "max_graphs": "7"})
        assert (parsed.device, parsed.token_budget, parsed.max_graphs) == ("cuda:1", 99, 7)

    def test_it_is_frozen(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            EngineConfig().threads = 3

    @pytest.mark.parametrize(
        "name",
        [
            "token_budget",
            "max_queued_tokens",
            "max_waiting_tokens",
            "bulk_tokens",
            "max_queue_ms",
            "max_answer_mb",
            "threads",
            "max_batch_sequences",
            "max_in_flight",
            "graph_max_tokens",
            "graph_memory_mb",
            "max_graphs",
        ],
    )
    @pytest.mark.parametrize("value", [0, -1])
    def test_counts_are_positive(self, name, value):
        with pytest.raises(ConfigError, match=f"{name}: must be at least 1, got {value}"):
            EngineConfig.from_parameters({name: str(value)})

    @pytest.mark.parametrize("name", ["graph_start_s", "graph_busy_ms"])
    def test_times_may_be_zero_but_not_less(self, name):
        assert getattr(EngineConfig.from_parameters({name: "0"}), name) == 0
        with pytest.raises(ConfigError, match=f"{name}: must be at least 0, got -1"):
            EngineConfig.from_parameters({name: "-1"})

    def test_when_graphs_are_captured(self):
        for value in ("idle", "lazy", "off"):
            assert EngineConfig.from_parameters({"graph_capture": value}).graph_capture == value
        with pytest.raises(ConfigError, match="graph_capture: 'auto' is not one of idle, lazy, off"):
            EngineConfig.from_parameters({"graph_capture": "auto"})

    def test_tasks(self):
        assert EngineConfig().task == "embed"
        assert EngineConfig.from_parameters({"task": "rerank"}).task == "rerank"
        with pytest.raises(ConfigError, match="task: 'auto' is not one of embed, rerank, classify"):
            EngineConfig.from_parameters({"task": "auto"})

    def test_one_reply_thread_more_than_batches_in_flight(self):
        assert EngineConfig(max_in_flight=3, reply_threads=4).reply_threads == 4
        with pytest.raises(ConfigError, match="reply_threads: must be at least 5, got 4"):
            EngineConfig(max_in_flight=4)

    @pytest.mark.parametrize(
        ("name", "value", "choices"),
        [
            ("dtype", "float64", "auto, float32, bfloat16, float16"),
            ("pooling", "max", "auto, mean, cls, last"),
            ("matryoshka", "true", "auto, yes, no"),
        ],
    )
    def test_choices(self, name, value, choices):
        with pytest.raises(ConfigError, match=f"{name}: '{value}' is not one of {choices}"):
            EngineConfig.from_parameters({name: value})
        assert getattr(EngineConfig.from_parameters({name: "auto"}), name) is None

    def test_an_unknown_parameter_is_named(self):
        with pytest.raises(ConfigError, match="unknown parameter 'max_seq_length'"):
            EngineConfig.from_parameters({"max_seq_length": "128"})


class TestTokenizerConfig:
    def test_defaults(self):
        assert TokenizerConfig.from_parameters({}) == TokenizerConfig()
        assert TokenizerConfig().parsed_prompts() == {}

    @pytest.mark.parametrize("name", ["max_seq_length", "threads"])
    def test_counts_are_positive(self, name):
        with pytest.raises(ConfigError, match=f"{name}: must be at least 1, got 0"):
            TokenizerConfig.from_parameters({name: "0"})

    def test_prompts_are_a_json_object_of_strings(self):
        parsed = TokenizerConfig.from_parameters({"prompts": '{"query": "q: ", "document": ""}'})
        assert parsed.parsed_prompts() == {"query": "q: ", "document": ""}

    @pytest.mark.parametrize("text", ["[]", '"query"', "3", "null", '{"query": 1}', '{"query": null}'])
    def test_other_json_is_refused(self, text):
        with pytest.raises(ConfigError, match="prompts: must be a JSON object of strings"):
            TokenizerConfig.from_parameters({"prompts": text})

    @pytest.mark.parametrize("text", ["{", "query=q", "{'query': 'q'}"])
    def test_malformed_json_is_refused(self, text):
        with pytest.raises(ConfigError, match="prompts: not valid JSON"):
            TokenizerConfig.from_parameters({"prompts": text})

    @pytest.mark.parametrize(
        ("template", "placeholder"),
        [
            ("{text}", "{instruction}"),
            ("{instruction}", "{text}"),
            ("", "{instruction}"),
            ("{instruction}{text}{text}", "{text}"),
            ("{instruction}{instruction}{text}", "{instruction}"),
        ],
    )
    def test_the_instruction_template_holds_each_placeholder_once(self, template, placeholder):
        with pytest.raises(ConfigError) as caught:
            TokenizerConfig.from_parameters({"instruction_template": template})
        assert str(caught.value) == f"instruction_template: must hold {placeholder} once, got {template!r}"

    def test_an_unknown_parameter_is_named(self):
        with pytest.raises(ConfigError, match="unknown parameter 'device'"):
            TokenizerConfig.from_parameters({"device": "cpu"})


@pytest.mark.parametrize("cls", [EngineConfig, TokenizerConfig])
def test_every_parameter_is_described(cls):
    text = inspect.getdoc(cls)
    missing = [field.name for field in dataclasses.fields(cls) if f"\n    {field.name}: " not in text]
    assert missing == []


def test_defaults_pass_their_own_checks():
    assert TokenizerConfig().instruction_template == config.DEFAULT_INSTRUCTION_TEMPLATE
