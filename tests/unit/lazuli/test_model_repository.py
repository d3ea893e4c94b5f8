"""The committed `model_repository`: what Triton reads, and what ours reads of it."""

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import np_to_triton_dtype

from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.options import ENCODINGS, RequestOptions
from lazuli.outputs.calibration import calibrate
from lazuli.outputs.dense import DenseModel

REPOSITORY = Path(__file__).resolve().parents[3] / "model_repository"
NAMES = ("embed", "embed_stream", "embedding", "embedding_stream", "tokenizer")


def read(name):
    text = (REPOSITORY / name / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def parameters_of(name):
    return {key: value.string_value for key, value in read(name).parameters.items()}


@pytest.fixture(autouse=True)
def no_lazuli_variables(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith("LAZULI_")]:
        monkeypatch.delenv(name)


def test_these_models_and_no_others():
    assert sorted(path.name for path in REPOSITORY.iterdir() if path.is_dir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_parses_under_its_own_name(name):
    config = read(name)
    assert config.name == name
    assert config.max_batch_size == 1024
    assert any((REPOSITORY / name / "1").iterdir()), "git does not keep an empty version folder"


@pytest.mark.parametrize("name", ["embedding", "embedding_stream"])
def test_engine_parameters_are_the_defaults(name):
    assert EngineConfig.from_parameters(parameters_of(name)) == EngineConfig()
    assert set(parameters_of(name)) == set(EngineConfig.__dataclass_fields__)


def test_tokenizer_parameters_are_the_defaults():
    assert TokenizerConfig.from_parameters(parameters_of("tokenizer")) == TokenizerConfig()
    assert set(parameters_of("tokenizer")) == set(TokenizerConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("LAZULI_CHECKPOINT", "/models/x", "checkpoint", "/models/x"),
        ("LAZULI_DEVICE", "cpu", "device", "cpu"),
        ("LAZULI_DTYPE", "float32", "dtype", "float32"),
        ("LAZULI_POOLING", "cls", "pooling", "cls"),
        ("LAZULI_MATRYOSHKA", "yes", "matryoshka", "yes"),
        ("LAZULI_CALIBRATION", "/ranges.json", "calibration", "/ranges.json"),
        ("LAZULI_ATTENTION", "sdpa", "attention", "sdpa"),
        ("LAZULI_THREADS", "3", "threads", 3),
        ("LAZULI_GRAPH_CAPTURE", "off", "graph_capture", "off"),
        ("LAZULI_CACHE_DIR", "/cache", "cache_dir", "/cache"),
    ],
)
@pytest.mark.parametrize("name", ["embedding", "embedding_stream"])
def test_the_environment_tunes_the_engine(monkeypatch, name, variable, value, field, expected):
    monkeypatch.setenv(variable, value)
    assert getattr(EngineConfig.from_parameters(parameters_of(name)), field) == expected


def test_the_environment_tunes_the_tokenizer(monkeypatch):
    monkeypatch.setenv("LAZULI_CHECKPOINT", "/models/x")
    monkeypatch.setenv("LAZULI_MAX_SEQ_LENGTH", "128")
    monkeypatch.setenv("LAZULI_PROMPTS", '{"query": "q: "}')
    config = TokenizerConfig.from_parameters(parameters_of("tokenizer"))
    assert (config.checkpoint, config.max_seq_length) == ("/models/x", 128)
    assert config.parsed_prompts() == {"query": "q: "}


def test_the_two_engines_differ_in_name_policy_and_index_alone():
    unary, stream = read("embedding"), read("embedding_stream")
    assert not unary.model_transaction_policy.decoupled
    assert stream.model_transaction_policy.decoupled
    (index,) = [place for place, output in enumerate(stream.output) if output.name == "index"]
    stream.name = unary.name
    stream.ClearField("model_transaction_policy")
    del stream.output[index]
    assert stream == unary


def test_rows_of_an_engine_call_are_not_merged_by_triton():
    for tensor in read("embedding").input:
        assert tensor.allow_ragged_batch
        assert list(tensor.dims) == [-1]


def outputs(name):
    return {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in read(name).output}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_is_an_output_of_its_type(encoding):
    ranges = calibrate(np.eye(2, 8, dtype=np.float32), (), normalize=False)
    form = DenseModel(8, False, calibration=ranges).choose(RequestOptions(output=(encoding,)))
    ((name, values),) = form.lay_out(np.ones(1, np.int32)).items()
    data_type = model_config_pb2.DataType.Value(f"TYPE_{np_to_triton_dtype(values.dtype)}")
    assert outputs("embedding")[name] == (data_type, [-1])


@pytest.mark.parametrize(
    ("ensemble", "engine", "tokenizer_outputs"),
    [("embed", "embedding", {"truncated"}), ("embed_stream", "embedding_stream", set())],
)
def test_an_ensemble_passes_on_what_its_steps_give(ensemble, engine, tokenizer_outputs):
    config = read(ensemble)
    assert config.platform == "ensemble"
    assert [step.model_name for step in config.ensemble_scheduling.step] == ["tokenizer", engine]
    assert outputs(ensemble) == outputs(engine) | {name: outputs("tokenizer")[name] for name in tokenizer_outputs}
    passed_on = dict(config.ensemble_scheduling.step[1].output_map)
    assert passed_on == {name: name for name in outputs(engine)}


@pytest.mark.parametrize("model", ["embedding", "embedding_stream"])
def test_no_queue_limit_puts_a_batcher_to_sleep(model):
    """With max_queue_size Triton 24.10 leaves requests that come while the process is busy lying for half a second."""
    config = read(model)
    assert config.HasField("dynamic_batching")
    assert not config.dynamic_batching.HasField("default_queue_policy")


def test_strings_of_several_callers_never_come_in_one_call():
    """Triton 24.10 fails all requests of a call if the strings of one are broken."""
    assert not read("tokenizer").HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("name", "source"),
    [("embedding", "embedding"), ("embedding_stream", "embedding"), ("tokenizer", "tokenizer")],
)
def test_model_py_is_one_line(name, source):
    text = (REPOSITORY / name / "1" / "model.py").read_text(encoding="utf-8")
    assert text == f"from lazuli.triton.{source} import TritonPythonModel\n"
