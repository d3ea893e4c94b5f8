"""The folders that models for scores and labels are made from: what Triton would read, and what ours read of it."""

import importlib
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

import lazuli.repository
from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.context.config import ContextTokenizerConfig
from lazuli.pairs.config import PairTokenizerConfig
from lazuli.repository.names import PARTS, Task

BLUEPRINTS = Path(lazuli.repository.__file__).parent / "blueprints"
COMMITTED = Path(__file__).resolve().parents[4] / "model_repository"
NAMES = sorted(path.name for path in BLUEPRINTS.iterdir())
ENGINES = {"reranking": "rerank", "classification": "classify", "contextual": "context"}
OTHER_TASKS = (Task.RERANK, Task.CLASSIFY, Task.CONTEXT)


def read(name, repository=BLUEPRINTS):
    text = (repository / name / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def parameters(name, repository=BLUEPRINTS):
    return {key: value.string_value for key, value in read(name, repository).parameters.items()}


def test_all_that_are_needed_are_there():
    needed = {part.blueprint for task in OTHER_TASKS for part in PARTS[task]}
    assert needed <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_parses_under_its_own_name(name):
    config = read(name)
    assert (config.name, config.max_batch_size) == (name, 1024)
    assert any((BLUEPRINTS / name / "1").iterdir()), "git does not keep an empty version folder"


@pytest.mark.parametrize("name", ENGINES)
def test_engine_parameters_are_the_defaults(name, monkeypatch):
    for variable in ("DEVICE", "DTYPE", "ATTENTION", "THREADS", "GRAPH_CAPTURE", "CACHE_DIR"):
        monkeypatch.delenv(f"LAZULI_{variable}", raising=False)
    assert EngineConfig.from_parameters(parameters(name)) == EngineConfig(checkpoint="", task=ENGINES[name])


def test_engines_have_the_parameters_of_the_built_in_one_that_concern_them():
    own = set(parameters("embedding", COMMITTED))
    for name in ENGINES:
        left_out = OF_GRAPHS if name == "contextual" else OF_VECTORS
        assert set(parameters(name)) == own - left_out - OF_TOKENS | {"task"}, name


# Only texts have outputs of single tokens.
OF_TOKENS = {"max_answer_mb"}
# What becomes of vectors means nothing to a head, which decides on pooling, too. Documents never run as graphs.
OF_VECTORS = {"pooling", "calibration", "matryoshka"}
OF_GRAPHS = {"max_graphs", *(f"graph_{name}" for name in ("capture", "max_tokens", "memory_mb", "start_s", "busy_ms"))}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rerank_tokenizer", PairTokenizerConfig),
        ("classify_tokenizer", TokenizerConfig),
        ("context_tokenizer", ContextTokenizerConfig),
    ],
)
def test_tokenizer_parameters_are_the_defaults(name, kind):
    assert kind.from_parameters(parameters(name)) == kind(checkpoint="")
    assert set(parameters(name)) == set(kind.__dataclass_fields__)


@pytest.mark.parametrize("task", OTHER_TASKS)
def test_steps_fit_each_other(task):
    *steps, door = [part.blueprint for part in PARTS[task]]
    ensemble = read(door)
    assert [step.model_name for step in ensemble.ensemble_scheduling.step] == steps
    known = {tensor.name for tensor in ensemble.input}
    types = {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in [*ensemble.input, *ensemble.output]}
    for step in ensemble.ensemble_scheduling.step:
        config = read(step.model_name)
        needed = {tensor.name for tensor in config.input if not tensor.optional}
        assert needed <= set(step.input_map) <= {tensor.name for tensor in config.input}
        assert set(step.input_map.values()) <= known
        assert set(step.output_map) == {tensor.name for tensor in config.output}
        known |= set(step.output_map.values())
        for tensor in [*config.input, *config.output]:
            assert types.setdefault(tensor.name, (tensor.data_type, list(tensor.dims))) == (
                tensor.data_type,
                list(tensor.dims),
            )
    assert {tensor.name for tensor in ensemble.output} <= known


@pytest.mark.parametrize("name", [name for name in NAMES if (BLUEPRINTS / name / "1" / "model.py").is_file()])
def test_the_code_names_a_module_that_is_there(name):
    words = (BLUEPRINTS / name / "1" / "model.py").read_text().split()
    assert (words[0], words[2:]) == ("from", ["import", "TritonPythonModel"])
    assert importlib.util.find_spec(words[1]) is not None
