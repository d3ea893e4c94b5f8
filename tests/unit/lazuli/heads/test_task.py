import json

import pytest

from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.heads.task import check_task, detect_task, read_labels


@pytest.fixture
def make(tmp_path, write_bert):
    """A checkpoint of an architecture; only its JSON files count here."""

    def make(architecture, folder="model", *, modules=False, module_classes=(), sentence_transformers=None, **changes):
        path = write_bert(tmp_path / folder, modules=modules, architectures=[architecture], **changes)
        if module_classes:
            entries = [{"type": f"any.{name}", "path": ""} for name in module_classes]
            (path / "modules.json").write_text(json.dumps(entries))
        if sentence_transformers:
            (path / "config_sentence_transformers.json").write_text(json.dumps(sentence_transformers))
        return load_checkpoint(str(path))

    return make


ONE_LABEL = {"id2label": {"0": "LABEL_0"}}


class TestDetection:
    @pytest.mark.parametrize(
        ("architecture", "options", "task"),
        [
            ("BertModel", {}, "embed"),
            ("BertModel", {"modules": True}, "embed"),
            ("BertForMaskedLM", {}, "embed"),
            ("BertForSequenceClassification", ONE_LABEL, "rerank"),
            ("BertForSequenceClassification", {}, "classify"),
            ("BertForSequenceClassification", {"id2label": {"0": "a", "1": "b", "2": "c"}}, "classify"),
            ("Qwen3ForCausalLM", {}, "embed"),
            ("Qwen3ForCausalLM", {"modules": True}, "embed"),
            ("Qwen3ForCausalLM", {"module_classes": ["Transformer", "LogitScore"]}, "rerank"),
            ("Qwen3ForCausalLM", {"sentence_transformers": {"model_type": "CrossEncoder"}}, "rerank"),
            ("Qwen3ForCausalLM", {"sentence_transformers": {"model_type": "SentenceTransformer"}}, "embed"),
            ("Qwen3ForCausalLM", {"folder": "Qwen3-Reranker-0.6B"}, "rerank"),
            ("Qwen3ForCausalLM", {"folder": "models--Qwen--Qwen3-Reranker-0.6B/snapshots/e61197ed"}, "rerank"),
            ("Qwen3ForCausalLM", {"folder": "embedding-for-reranker", "modules": True}, "embed"),
        ],
    )
    def test_task(self, make, architecture, options, task):
        checkpoint = make(architecture, **options)
        assert detect_task(checkpoint) == task
        check_task(checkpoint, task)


class TestCheck:
    @pytest.mark.parametrize(
        ("task", "architecture", "options", "message"),
        [
            (
                "embed",
                "BertForSequenceClassification",
                ONE_LABEL,
                "made for the task rerank, and its vectors mean noth",
            ),
            ("embed", "BertForSequenceClassification", {}, "made for the task classify"),
            ("embed", "Qwen3ForCausalLM", {"module_classes": ["LogitScore"]}, "made for the task rerank"),
            (
                "classify",
                "BertModel",
                {},
                r"BertModel has no labels; task classify needs a \*ForSequenceClassification",
            ),
            ("classify", "Qwen3ForCausalLM", {}, "Qwen3ForCausalLM has no labels"),
            (
                "classify",
                "BertForSequenceClassification",
                ONE_LABEL,
                "has one label, which every text would get; task rerank takes it; .* problem_type",
            ),
            ("rerank", "BertForSequenceClassification", {}, "has 2 labels; task rerank needs one, task classify takes"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, make, task, architecture, options, message):
        with pytest.raises(ConfigError, match=message):
            check_task(make(architecture, **options), task)

    @pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
    def test_one_label_that_is_a_measure_can_be_classified(self, make, problem):
        check_task(make("BertForSequenceClassification", **ONE_LABEL, problem_type=problem), "classify")

    def test_a_language_model_that_is_a_reranker_by_name_alone(self, make):
        checkpoint = make("Qwen3ForCausalLM", folder="Qwen3-Reranker-0.6B")
        for task in ("embed", "context"):
            with pytest.raises(ConfigError, match=r"is made for the task rerank.* \(the name of its folder says so"):
                check_task(checkpoint, task)
        check_task(make("BertModel", folder="bge-reranker-like"), "embed")

    @pytest.mark.parametrize(
        ("options", "output"),
        [
            ({"module_classes": ["MLMTransformer", "SpladePooling"]}, "sparse"),
            ({"sentence_transformers": {"do_query_expansion": False, "query_length": 32}}, "multi"),
        ],
    )
    def test_chunks_need_dense_vectors(self, make, options, output):
        checkpoint = make("BertForMaskedLM", **options)
        for task in ("embed", "rerank"):
            check_task(checkpoint, task)
        expected = f"has the output {output} and no dense vectors, which task context needs; it can be served for the"
        with pytest.raises(ConfigError, match=expected):
            check_task(checkpoint, "context")

    def test_a_language_model_can_rerank_whatever_it_is_called(self, make):
        check_task(make("Qwen3ForCausalLM"), "rerank")


class TestLabels:
    @pytest.mark.parametrize(
        ("changes", "labels"),
        [
            ({}, ("LABEL_0", "LABEL_1")),
            ({"num_labels": 3}, ("LABEL_0", "LABEL_1", "LABEL_2")),
            ({"id2label": {"1": "bad", "0": "good"}, "num_labels": 7}, ("good", "bad")),
            ({"id2label": {str(number): f"n{number}" for number in range(12)}}, tuple(f"n{n}" for n in range(12))),
        ],
    )
    def test_names(self, make, changes, labels):
        assert read_labels(make("BertForSequenceClassification", **changes)) == labels

    @pytest.mark.parametrize("names", [["a", "b"], {"1": "a", "2": "b"}, {"0": 5}])
    def test_what_is_not_numbered_is_refused(self, make, names):
        with pytest.raises(ConfigError, match="id2label must map the numbers from 0 on to names"):
            read_labels(make("BertForSequenceClassification", id2label=names))
