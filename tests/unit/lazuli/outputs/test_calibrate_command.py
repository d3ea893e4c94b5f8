"""The command as a person runs it, on a small checkpoint with a tokenizer and on the packaged MiniLM."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from lazuli.checkpoint import resolve_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT, EngineConfig
from lazuli.engine import Engine
from lazuli.errors import ConfigError
from lazuli.outputs import calibrate_command
from lazuli.outputs.calibration import FILE_NAME

TEXTS = ["Bees dance.", "Yeast makes dough rise.", "The moon causes the tides.", "", "why does bread rise"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrate") / "minilm"
    shutil.copytree(resolve_checkpoint(DEFAULT_CHECKPOINT), folder)
    return folder


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"{text}\n" for text in TEXTS))
    return file


def run(*arguments):
    app = typer.Typer()
    calibrate_command.register(app)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_what_it_writes_is_what_the_engine_reads(checkpoint, texts):
    result = run(checkpoint, "--texts", texts, "--dimensions", 64, "--device", "cpu", "--dtype", "float32")
    assert result.exit_code == 0, result.output
    file = checkpoint / FILE_NAME
    assert (
        result.stdout == f"{file}: ranges of 384, 64 dimensions over 5 texts; the engine reads it at its next start\n"
    )
    engine = Engine(EngineConfig(checkpoint=str(checkpoint), dtype="float32"), torch.device("cpu"))
    assert engine.dense_model.calibration.places == {384: 0, 64: 1}
    assert json.loads(file.read_text())["normalize"]
    from lazuli.config import TokenizerConfig
    from lazuli.options import RequestOptions
    from lazuli.tokenizer import TextTokenizer

    tokenizer = TextTokenizer.from_config(TokenizerConfig(checkpoint=str(checkpoint)))
    rows = [np.array(text.input_ids, np.int32) for text in tokenizer.tokenize(TEXTS, RequestOptions())]
    vectors = engine.embed_ids(rows)
    np.testing.assert_allclose(engine.dense_model.calibration.ranges[0].minimum, vectors.min(axis=0), atol=1e-6)
    np.testing.assert_allclose(engine.dense_model.calibration.ranges[0].maximum, vectors.max(axis=0), atol=1e-6)
    file.unlink()


def test_texts_without_spread(checkpoint, tmp_path):
    file = tmp_path / "equal.txt"
    file.write_text("the same\n" * 3)
    result = run(checkpoint, "--texts", file, "--device", "cpu", "--dtype", "float32")
    assert result.exit_code == 2
    assert "texts: all 3 are the same, so the 384 dimensions have no ranges" in result.output
    assert not (checkpoint / FILE_NAME).exists()


def test_dimensions_without_spread_are_a_warning(checkpoint, texts, monkeypatch, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((5, 384)).astype(np.float32)
    vectors[:, :9] = 0
    monkeypatch.setattr(calibrate_command, "embed", lambda *_: vectors)
    result = run(checkpoint, "--texts", texts, "--output", tmp_path / "x.json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "warning: 9 of 384 dimensions have the same value in all texts" in result.output


def test_an_engine_refuses_what_is_of_other_weights(checkpoint, texts, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(checkpoint, folder)
    result = run(folder, "--texts", texts, "--device", "cpu", "--dtype", "float32")
    assert result.exit_code == 0, result.output
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-2] ^= 1
    weights.write_bytes(content)
    config = EngineConfig(checkpoint=str(folder), dtype="float32")
    with pytest.raises(ConfigError, match=f"calibration: {folder / FILE_NAME} is stale: made with weights"):
        Engine(config, torch.device("cpu"))
    with pytest.raises(ConfigError, match="is stale: made with pooling 'mean', but the model now has 'cls'"):
        Engine(replace(config, pooling="cls"), torch.device("cpu"))


def test_another_place_and_fewer_texts(checkpoint, texts, tmp_path):
    place = tmp_path / "ranges.json"
    result = run(checkpoint, "--texts", texts, "--limit", 3, "--output", place, "--device", "cpu", "--dtype", "float32")
    assert result.exit_code == 0, result.output
    assert "over 3 texts; name it in the parameter calibration" in result.stdout
    assert json.loads(place.read_text())["texts"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "'nothing' is neither a folder nor"),
        ((DEFAULT_CHECKPOINT, "--limit", 2, "--dimensions", 500), "dimensions: 500, but the model's vectors have 384"),
        ((DEFAULT_CHECKPOINT, "--prompt-name", "none"), "prompt_name"),
        ((DEFAULT_CHECKPOINT, "--output", "/none/x.json"), "/none/x.json: cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_line(texts, arguments, said):
    result = run(*arguments, "--texts", texts, "--device", "cpu", "--dtype", "float32")
    assert result.exit_code == 2
    assert result.output.startswith("error: ")
    assert said in result.output


def test_no_texts(tmp_path):
    result = run(DEFAULT_CHECKPOINT, "--texts", tmp_path / "none.txt")
    assert result.exit_code == 2
    assert "none.txt" in result.output


@pytest.mark.parametrize(
    ("modules", "output"),
    [(["MLMTransformer", "SpladePooling"], "sparse"), (["Transformer", "MultiVectorMask"], "multi")],
)
def test_a_model_without_dense_vectors_is_refused(tmp_path, texts, checkpoint, modules, output):
    folder = tmp_path / "tokens"
    shutil.copytree(checkpoint, folder)
    (folder / "modules.json").write_text(json.dumps([{"type": f"m.{name}", "path": name} for name in modules]))
    (folder / modules[1]).mkdir()
    (folder / modules[1] / "config.json").write_text("{}")
    result = run(folder, "--texts", texts, "--device", "cpu")
    assert result.exit_code == 2
    assert f"has the output {output} and no dense vectors, which lazuli calibrate needs" in result.output
    assert not (folder / FILE_NAME).exists()


def test_a_model_with_a_quantiser_needs_none(tmp_path, texts, checkpoint):
    folder = tmp_path / "pplx"
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["PPLXQwen3Model"]}))
    result = run(folder, "--texts", texts)
    assert result.exit_code == 2
    assert "a quantiser of its own" in result.output


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [([5, 1, 9, 3], 9, [[1, 3, 0], [2]]), ([20, 1], 9, [[1], [0]]), ([], 9, [])],
)
def test_batches(lengths, budget, expected):
    assert calibrate_command._cut(lengths, budget) == expected
