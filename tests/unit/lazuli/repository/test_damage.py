"""What is damaged or does not fit: what ends the start of an engine keeps `add` from writing, in the same words."""

import json
import pickle
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.errors import ConfigError
from lazuli.outputs.calibration import FILE_NAME
from lazuli.repository.addition import Wish, add
from lazuli.repository.catalog import entries
from lazuli.repository.errors import RepositoryError
from lazuli.repository.facts import examine
from lazuli.repository.names import Task

IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture
def bge_m3(checkpoint):
    """Two layers beside the vectors."""
    for name, size in (("sparse_linear", 1), ("colbert_linear", 32)):
        torch.save(torch.nn.Linear(32, size).state_dict(), checkpoint / f"{name}.pt")
    return checkpoint


@pytest.fixture
def colbert(checkpoint):
    """One vector a token, of 8 dimensions."""
    modules = [{"type": "m.Transformer", "path": ""}, {"type": "m.Dense", "path": "1_Dense"}]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    folder = checkpoint / "1_Dense"
    folder.mkdir()
    layer = {"in_features": 32, "out_features": 8, "bias": False, "activation_function": IDENTITY}
    (folder / "config.json").write_text(json.dumps(layer))
    save_file({"linear.weight": torch.zeros(8, 32)}, folder / "model.safetensors")
    settings = {"do_query_expansion": False, "query_length": 32}
    (checkpoint / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return checkpoint


@pytest.fixture
def splade(checkpoint):
    """A masked language model of 100 ids."""
    config = json.loads((checkpoint / "config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    (checkpoint / "config.json").write_text(json.dumps(config))
    tensors = {f"bert.{name}": value for name, value in load_file(checkpoint / "model.safetensors").items()}
    head = "cls.predictions"
    shapes = {"transform.dense.weight": (32, 32), "transform.dense.bias": (32,), "bias": (100,)}
    shapes |= {f"transform.LayerNorm.{name}": (32,) for name in ("weight", "bias")}
    tensors |= {f"{head}.{name}": torch.zeros(shape) for name, shape in shapes.items()}
    save_file(tensors, checkpoint / "model.safetensors")
    modules = [{"type": "m.MLMTransformer", "path": ""}, {"type": "m.SpladePooling", "path": "1_SpladePooling"}]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    (checkpoint / "1_SpladePooling").mkdir()
    (checkpoint / "1_SpladePooling" / "config.json").write_text("{}")
    return checkpoint


def halve(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


class Evil:
    def __reduce__(self):
        return (print, ("run by a pickle",))


DAMAGES = {
    "half": halve,
    "empty": lambda file: file.write_bytes(b""),
    "a pickle that runs code": lambda file: file.write_bytes(pickle.dumps(Evil())),
    "no layer": lambda file: torch.save({"other": torch.zeros(1, 32)}, file),
    "of another size": lambda file: torch.save({"weight": torch.zeros(3, 31)}, file),
    "no tensors": lambda file: torch.save({"weight": 3}, file),
}
RANGES = {"version": 1, "dimension": 32, "normalize": True, "texts": 2}
RANGE = {"dimensions": 32, "minimum": [0.0] * 32, "maximum": [1.0] * 32}
CALIBRATIONS = {
    "half": '{"version": 1, "dimen',
    "a list": "[]",
    "a number": "3",
    "no ranges": json.dumps(RANGES | {"ranges": []}),
    "dimensions -1": json.dumps(RANGES | {"dimension": -1, "ranges": [RANGE | {"dimensions": -1}]}),
    "a range of -1 dimensions": json.dumps(RANGES | {"ranges": [RANGE | {"dimensions": -1}]}),
    "of another model": json.dumps(RANGES | {"dimension": 48, "ranges": [RANGE]}),
}


@pytest.fixture
def refused(tmp_path):
    """The complaint of `add`, which must be that of an engine at its start; nothing is written.

    What was added before the damage is shown by `list` with the same words.
    """

    def check(checkpoint, damage=lambda: None, task=Task.EMBED, **parameters):
        wish = Wish("docs", str(checkpoint), tmp_path / "models", task, parameters=parameters)
        if not parameters:
            add(wish, lambda text: None)
            assert entries(wish.repository)[0].fault == ""
            shutil.copytree(wish.repository, tmp_path / "before")
            shutil.rmtree(wish.repository)
        damage()
        config = EngineConfig(str(checkpoint), task.value, dtype="float32", **parameters)
        with pytest.raises(ConfigError) as at_start:
            Engine(config, torch.device("cpu"))
        with pytest.raises(RepositoryError) as caught:
            add(wish, lambda text: None)
        assert str(caught.value) == str(at_start.value)
        assert not wish.repository.exists()
        if not parameters:
            assert entries(tmp_path / "before")[0].fault == str(caught.value)
        return str(caught.value)

    return check


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("name", ["sparse_linear.pt", "colbert_linear.pt"])
def test_layers_of_bge_m3(refused, bge_m3, name, damage, capsys):
    assert name in refused(bge_m3, lambda: damage(bge_m3 / name))
    assert "run by a pickle" not in capsys.readouterr().out


def test_a_layer_that_texts_are_compared_by(refused, bge_m3):
    assert "sparse_linear.pt" in refused(bge_m3, lambda: halve(bge_m3 / "sparse_linear.pt"), Task.RERANK)


def test_one_layer_alone(refused, bge_m3):
    assert "has sparse_linear but no colbert_linear" in refused(bge_m3, (bge_m3 / "colbert_linear.pt").unlink)


@pytest.mark.parametrize("task", [Task.EMBED, Task.RERANK])
def test_layers_of_late_interaction(refused, colbert, task):
    assert "1_Dense" in refused(colbert, (colbert / "1_Dense" / "model.safetensors").unlink, task)


def test_half_a_layer_of_late_interaction(refused, colbert):
    assert "1_Dense" in refused(colbert, lambda: halve(colbert / "1_Dense" / "model.safetensors"))


def test_the_head_of_splade(refused, splade):
    file = splade / "model.safetensors"
    tensors = load_file(file)
    del tensors["cls.predictions.transform.dense.weight"]
    assert "cls.predictions.transform.dense" in refused(splade, lambda: save_file(tensors, file))


@pytest.mark.parametrize("content", CALIBRATIONS.values(), ids=CALIBRATIONS.keys())
@pytest.mark.parametrize("task", [Task.EMBED, Task.CONTEXT])
def test_calibration(refused, checkpoint, content, task):
    file = checkpoint / FILE_NAME
    assert str(file) in refused(checkpoint, lambda: file.write_text(content), task)


def test_matryoshka(refused, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text()) | {"matryoshka_dims": ["many"]}
    assert "matryoshka_dims" in refused(checkpoint, lambda: (checkpoint / "config.json").write_text(json.dumps(config)))


@pytest.mark.parametrize(
    ("parameter", "value", "match"),
    [
        ("calibration", "/nonexistent.json", "calibration: /nonexistent.json: No such file"),
        ("attention", "quickest", "attention: 'quickest' is not one of auto"),
    ],
)
def test_parameters(refused, checkpoint, parameter, value, match):
    assert match in refused(checkpoint, **{parameter: value})


def test_a_device_that_no_machine_has(checkpoint, tmp_path):
    wish = Wish("docs", str(checkpoint), tmp_path / "models", parameters={"device": "tpu"})
    with pytest.raises(RepositoryError, match="device: 'tpu' is not one of auto, cpu, cuda, cuda:N"):
        add(wish, lambda text: None)
    add(replace(wish, parameters={"device": "cuda:7"}), lambda text: None)


def test_an_attention_that_the_model_cannot_have(checkpoint, tmp_path):
    """What only a GPU can run may be asked for on another machine, but not for relative positions."""
    from transformers import MPNetConfig, MPNetModel

    wish = Wish("docs", str(checkpoint), tmp_path / "models", parameters={"attention": "flashinfer_fa3"}, force=True)
    add(wish, lambda text: None)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    MPNetModel(MPNetConfig(**sizes, vocab_size=100, max_position_embeddings=64)).save_pretrained(checkpoint)
    with pytest.raises(RepositoryError, match="attention: 'flashinfer_fa3' cannot be used: "):
        add(wish, lambda text: None)


def test_a_pair_template_of_the_other_kind(checkpoint, reranker, tmp_path):
    wish = Wish("docs", str(checkpoint), tmp_path / "models", Task.RERANK, parameters={"pair_template": "segments"})
    with pytest.raises(RepositoryError, match=r"pair_template: 'segments', but .* reads each text by itself"):
        add(wish, lambda text: None)
    with pytest.raises(RepositoryError, match=r"pair_template: 'texts', but .* reads both texts together"):
        add(replace(wish, checkpoint=str(reranker), parameters={"pair_template": "texts"}), lambda text: None)


@pytest.mark.parametrize("kind", ["checkpoint", "colbert", "reranker"])
def test_any_value_that_a_config_should_not_have(kind, request, tmp_path):
    """It is refused in plain words, or an engine starts with it."""
    folder = request.getfixturevalue(kind)
    task = Task.RERANK if kind == "reranker" else Task.EMBED
    config = EngineConfig(str(folder), task.value, dtype="float32")
    num_refused = 0
    for file in [file for file in sorted(folder.rglob("*config.json")) if file.name != "tokenizer_config.json"]:
        original = file.read_text()
        content = json.loads(original)
        changed = [json.dumps(content | {key: value}) for key in content for value in ("x", [], -1)]
        for text in ["", original[:-9], "[]", "3", *changed]:
            file.write_text(text)
            try:
                examine({"checkpoint": str(folder)}, {"checkpoint": str(folder), "task": task.value})
            except RepositoryError:
                num_refused += 1
            else:
                Engine(config, torch.device("cpu"))
        file.write_text(original)
    assert num_refused > 20


def test_a_list_goes_on_behind_a_model_that_cannot_be_read(checkpoint, classifier, tmp_path):
    for name, folder in (("a", checkpoint), ("b", classifier)):
        add(Wish(name, str(folder), tmp_path / "models"), lambda text: None)
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"architectures": 3}))
    one, other = entries(tmp_path / "models")
    assert one.fault.startswith(f"checkpoint: {checkpoint} cannot be read as a model (TypeError(")
    assert other.fault == ""


def test_an_exception_of_a_library_is_told_as_well(checkpoint, tmp_path, monkeypatch):
    add(Wish("docs", str(checkpoint), tmp_path / "models"), lambda text: None)

    def fail(*arguments):
        raise AttributeError("no such thing")

    monkeypatch.setattr("lazuli.engine_parts.load_encoder", fail)
    (entry,) = entries(tmp_path / "models")
    assert entry.fault == f"checkpoint: {checkpoint} cannot be read as a model (AttributeError('no such thing'))"


class TestColumns:
    """What `list` says of models that have no vectors of texts, or whose head pools in another way."""

    @pytest.fixture
    def listed(self, tmp_path):
        def find(checkpoint, task=None, **parameters):
            wish = Wish("docs", str(checkpoint), tmp_path / "models", task, parameters=parameters, force=True)
            add(wish, lambda text: None)
            (entry,) = entries(wish.repository)
            assert entry.fault == ""
            return entry.output, entry.dimension, entry.pooling

        return find

    def test_vectors(self, listed, checkpoint):
        assert listed(checkpoint) == ("dense", "32", "mean")
        assert listed(checkpoint, pooling="last") == ("dense", "32", "last")
        assert listed(checkpoint, Task.CONTEXT) == ("dense", "32", "mean")
        assert listed(checkpoint, Task.RERANK) == ("score by dense", "32", "mean")

    def test_heads(self, listed, reranker, classifier):
        assert listed(reranker) == ("score", "-", "cls")
        assert listed(classifier) == ("3 labels", "-", "cls")

    def test_a_language_model_that_reranks(self, listed, tmp_path, checkpoint):
        from transformers import Qwen3Config, Qwen3ForCausalLM

        folder = tmp_path / "qwen3-reranker"
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
        Qwen3ForCausalLM(
            Qwen3Config(**sizes, num_key_value_heads=2, head_dim=8, vocab_size=100, max_position_embeddings=256)
        ).save_pretrained(folder)
        text = (checkpoint / "tokenizer.json").read_text().replace('"w7"', '"yes"').replace('"w8"', '"no"')
        (folder / "tokenizer.json").write_text(text)
        assert listed(folder) == ("score", "-", "last")
        with pytest.raises(RepositoryError, match="is made for the task rerank"):
            listed(folder, Task.EMBED)

    def test_outputs_of_tokens(self, listed, bge_m3):
        assert listed(bge_m3) == ("dense, sparse, multi", "32", "mean")
        assert listed(bge_m3, Task.RERANK) == ("score by dense, sparse, multi", "32", "mean")

    def test_splade(self, listed, splade):
        assert listed(splade) == ("sparse", "-", "-")
        assert listed(splade, Task.RERANK) == ("score by sparse", "-", "-")
        with pytest.raises(RepositoryError, match="no dense vectors, which task context needs"):
            listed(splade, Task.CONTEXT)

    def test_late_interaction(self, listed, colbert):
        assert listed(colbert) == ("multi", "-", "-")
        with pytest.raises(RepositoryError, match="no dense vectors, which task context needs"):
            listed(colbert, Task.CONTEXT)

    def test_one_label_that_is_a_measure(self, listed, write_classifier):
        folder = write_classifier("education", num_labels=1, problem_type="regression")
        assert listed(folder, Task.CLASSIFY) == ("1 label", "-", "cls")
