import json

import pytest

from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.heads.head_config import AnswerTokens, LayerConfig, read_head_config

IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
ONE_LABEL = {"id2label": {"0": "LABEL_0"}}


@pytest.fixture
def read(tmp_path, write_bert):
    def read(architecture, task, *, prepare=lambda folder: None, sentence_transformers=None, **changes):
        folder = write_bert(tmp_path, modules=False, architectures=[architecture], **changes)
        if sentence_transformers:
            (folder / "config_sentence_transformers.json").write_text(json.dumps(sentence_transformers))
        prepare(folder)
        return read_head_config(load_checkpoint(str(folder)), task)

    return read


class TestLayers:
    def test_bert(self, read):
        head = read("BertForSequenceClassification", "classify", id2label={"0": "good", "1": "bad", "2": "none"})
        assert (head.pooling, head.labels, head.answers) == ("cls", ("good", "bad", "none"), None)
        dense, classifier = LayerConfig("pooler.dense", 32, 32, activation="tanh"), LayerConfig("classifier", 32, 3)
        assert head.layers == (dense, classifier)

    @pytest.mark.parametrize("family", ["XLMRoberta", "Roberta", "MPNet"])
    def test_roberta_and_its_kin(self, read, family):
        head = read(f"{family}ForSequenceClassification", "rerank", **ONE_LABEL)
        assert head.pooling == "cls"
        assert [layer.name for layer in head.layers] == ["classifier.dense", "classifier.out_proj"]

    def test_modernbert(self, read):
        changes = {"classifier_pooling": "mean", "classifier_activation": "relu", "norm_eps": 1e-3}
        head = read("ModernBertForSequenceClassification", "rerank", **changes, **ONE_LABEL)
        inner = LayerConfig("head.dense", 32, 32, bias=False, activation="relu", norm="head.norm", eps=1e-3)
        assert head.pooling == "mean"
        assert head.layers == (inner, LayerConfig("classifier", 32, 1))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"classifier_pooling": "max"}, "classifier_pooling: 'max' is not supported, only cls and mean are"),
            ({"classifier_activation": "mish"}, "classifier_activation: 'mish' is not one of gelu, relu, silu, tanh"),
        ],
    )
    def test_what_modernbert_may_not_ask_for(self, read, changes, message):
        with pytest.raises(ConfigError, match=message):
            read("ModernBertForSequenceClassification", "rerank", **changes, **ONE_LABEL)

    def test_qwen3(self, read):
        head = read("Qwen3ForSequenceClassification", "classify")
        assert (head.pooling, head.layers) == ("last", (LayerConfig("score", 32, 2, bias=False),))

    def test_another_head_is_refused(self, read):
        with pytest.raises(
            ConfigError, match="the head of LlamaForSequenceClassification is not supported; supported: "
        ):
            read("LlamaForSequenceClassification", "classify")

    def test_a_size_must_be_there(self, read):
        with pytest.raises(ConfigError, match=r"config\.json: hidden_size is missing"):
            read("BertForSequenceClassification", "classify", prepare=self.drop_size)

    @staticmethod
    def drop_size(folder):
        config = json.loads((folder / "config.json").read_text())
        del config["hidden_size"]
        (folder / "config.json").write_text(json.dumps(config))


class TestAnswerTokens:
    def test_yes_and_no_of_the_tokenizer(self, read, write_tokenizer):
        head = read("Qwen3ForCausalLM", "rerank", prepare=lambda folder: write_tokenizer(folder, ["?", "no", "yes"]))
        assert (head.pooling, head.labels, head.layers) == ("last", ("yes",), ())
        assert head.answers == AnswerTokens(yes=2, no=1)
        assert head.activation == "sigmoid"

    @pytest.mark.parametrize(
        ("module", "answers"),
        [
            ({"true_token_id": 7, "false_token_id": 8}, AnswerTokens(7, 8)),
            ({"true_token_id": 7, "false_token_id": None}, AnswerTokens(7, None)),
        ],
    )
    def test_those_of_a_module(self, read, module, answers):
        assert read("Qwen3ForCausalLM", "rerank", prepare=self.with_module(module)).answers == answers

    def test_a_module_without_them(self, read):
        with pytest.raises(ConfigError, match="no true_token_id, which a LogitScore needs"):
            read("Qwen3ForCausalLM", "rerank", prepare=self.with_module({}))

    @staticmethod
    def with_module(content):
        def write(folder):
            kinds = {"sentence_transformers.models.Transformer": "", "any.LogitScore": "1_LogitScore"}
            entries = [{"type": kind, "path": path} for kind, path in kinds.items()]
            (folder / "modules.json").write_text(json.dumps(entries))
            (folder / "1_LogitScore").mkdir()
            (folder / "1_LogitScore" / "config.json").write_text(json.dumps(content))

        return write

    def test_a_missing_token_is_named(self, read, write_tokenizer):
        with pytest.raises(ConfigError, match="no token 'yes', so Qwen3ForCausalLM cannot rerank"):
            read("Qwen3ForCausalLM", "rerank", prepare=lambda folder: write_tokenizer(folder, ["?", "no"]))

    def test_a_missing_tokenizer_is_named(self, read):
        with pytest.raises(ConfigError, match=r"tokenizer\.json: cannot be read"):
            read("Qwen3ForCausalLM", "rerank")


class TestActivation:
    @pytest.mark.parametrize(
        ("options", "activation"),
        [
            ({}, "identity"),
            ({"sentence_transformers": {"activation_fn": SIGMOID}}, "sigmoid"),
            ({"sentence_transformers": {"activation_fn": IDENTITY}}, "identity"),
            ({"sbert_ce_default_activation_function": "torch.nn.Sigmoid"}, "sigmoid"),
            ({"sbert_ce_default_activation_function": None}, "identity"),
            (
                {
                    "sentence_transformers": {"activation_fn": IDENTITY},
                    "sbert_ce_default_activation_function": SIGMOID,
                },
                "identity",
            ),
        ],
    )
    def test_of_scores(self, read, options, activation):
        assert read("BertForSequenceClassification", "rerank", **options, **ONE_LABEL).activation == activation

    def test_what_config_json_says_of_sentence_transformers(self, tmp_path, write_bert):
        section = {"activation_fn": SIGMOID, "version": "4.1.0"}
        changes = {"architectures": ["BertForSequenceClassification"], "sentence_transformers": section} | ONE_LABEL
        folder = write_bert(tmp_path, modules=False, **changes)
        assert read_head_config(load_checkpoint(str(folder)), "rerank").activation == "sigmoid"

    @pytest.mark.parametrize(
        ("options", "activation"),
        [
            ({}, "softmax"),
            ({"problem_type": "single_label_classification"}, "softmax"),
            ({"problem_type": "multi_label_classification"}, "sigmoid"),
            ({"problem_type": "regression"}, "identity"),
            (ONE_LABEL | {"problem_type": "multi_label_classification"}, "sigmoid"),
            (ONE_LABEL | {"problem_type": "regression"}, "identity"),
            ({"sentence_transformers": {"activation_fn": IDENTITY}}, "softmax"),
            ({"sentence_transformers": {"activation_fn": SIGMOID}}, "sigmoid"),
        ],
    )
    def test_of_labels(self, read, options, activation):
        assert read("BertForSequenceClassification", "classify", **options).activation == activation

    @pytest.mark.parametrize("path", ["mine.Sigmoid", "torch.nn.modules.activation.Tanh", "Sigmoid"])
    def test_another_is_refused(self, read, path):
        with pytest.raises(
            ConfigError, match=f"the activation '{path}' is not supported; those of torch are: Identity"
        ):
            read("BertForSequenceClassification", "rerank", sbert_ce_default_activation_function=path, **ONE_LABEL)

    def test_a_softmax_of_one_score_is_refused(self, read):
        changes = {"sbert_ce_default_activation_function": "torch.nn.Softmax"} | ONE_LABEL
        with pytest.raises(ConfigError, match="the activation Softmax of a single score"):
            read("BertForSequenceClassification", "rerank", **changes)
