"""Adding, and what catalog says of the result; the repository that new models are made from is the committed one."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.context.config import ContextTokenizerConfig
from lazuli.launch.options import Door
from lazuli.pairs.config import PairTokenizerConfig
from lazuli.repository import addition
from lazuli.repository.addition import Wish, add
from lazuli.repository.catalog import configs_of, entries, folders_of, parameters_of, remove
from lazuli.repository.errors import OutsideError, RepositoryError
from lazuli.repository.model_config import ModelConfig
from lazuli.repository.names import ModelNames, Task

COMMITTED = Path(__file__).resolve().parents[4] / "model_repository"


@pytest.fixture
def wish(tmp_path, checkpoint):
    return Wish("docs", str(checkpoint), tmp_path / "models")


def quiet(text):
    pass


def config(wish, folder):
    return ModelConfig((wish.repository / folder / "config.pbtxt").read_text(encoding="utf-8"))


def everything(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_five_folders_that_call_each_other(wish):
    added = add(wish, quiet)
    assert sorted(os.listdir(wish.repository)) == sorted(added.folders) == sorted(added.model.folders())
    assert {config(wish, name).name for name in added.folders} == set(added.folders)
    assert config(wish, "docs").steps == ["docs.tokenizer", "docs.embedding"]
    assert config(wish, "docs.stream").steps == ["docs.tokenizer", "docs.embedding_stream"]
    for name, built_in in (("docs.tokenizer", "tokenizer"), ("docs.embedding_stream", "embedding_stream")):
        code = (COMMITTED / built_in / "1" / "model.py").read_text()
        assert (wish.repository / name / "1" / "model.py").read_text() == code
    assert os.listdir(wish.repository / "docs" / "1") != []


def test_what_the_models_will_read(wish, monkeypatch):
    given = {"max_seq_length": "32", "pooling": "cls", "dtype": "float32", "prompts": '{"t": "Title:\\n"}'}
    add(replace(wish, parameters={**given, "token_budget": "64"}), quiet)
    for name in ("CHECKPOINT", "MAX_SEQ_LENGTH", "POOLING", "DTYPE", "PROMPTS"):
        monkeypatch.setenv(f"LAZULI_{name}", "not for this model")
    monkeypatch.setenv("LAZULI_THREADS", "3")
    tokenizer = TokenizerConfig.from_parameters(config(wish, "docs.tokenizer").parameters)
    assert (tokenizer.checkpoint, tokenizer.max_seq_length) == (wish.checkpoint, 32)
    assert tokenizer.parsed_prompts() == {"t": "Title:\n"}
    for engine in ("docs.embedding", "docs.embedding_stream"):
        engine_config = EngineConfig.from_parameters(config(wish, engine).parameters)
        expected = EngineConfig(wish.checkpoint, dtype="float32", pooling="cls", token_budget=64, threads=3)
        assert engine_config == expected


@pytest.mark.parametrize(
    ("door", "folders"),
    [
        (Door.UNARY, ["docs", "docs.embedding", "docs.tokenizer"]),
        (Door.STREAM, ["docs.embedding_stream", "docs.stream", "docs.tokenizer"]),
    ],
)
def test_one_door(wish, door, folders):
    add(replace(wish, door=door), quiet)
    assert sorted(os.listdir(wish.repository)) == folders
    (entry,) = entries(wish.repository)
    assert (entry.doors, entry.fault) == ([door], "")


def test_a_relative_folder_is_written_as_an_absolute_one(wish, monkeypatch, checkpoint):
    monkeypatch.chdir(checkpoint.parent)
    assert add(replace(wish, checkpoint="tiny"), quiet).checkpoint == str(checkpoint)


def test_a_packaged_checkpoint_keeps_its_name(wish):
    added = add(replace(wish, checkpoint="all-MiniLM-L6-v2"), quiet)
    assert (added.checkpoint, added.facts.dimension) == ("all-MiniLM-L6-v2", 384)


def test_a_name_of_the_hub_is_fetched_and_its_snapshot_written(wish, monkeypatch, checkpoint, tmp_path):
    asked = []

    def fetch(name, check, show):
        check(checkpoint)
        asked.append(str(name))
        return checkpoint

    monkeypatch.setattr("lazuli.repository.checkpoint_source.fetch", fetch)
    assert add(replace(wish, checkpoint="org/tiny@v1"), quiet).checkpoint == str(checkpoint)
    assert asked == ["org/tiny@v1"]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"name": "embed"}, "built-in"),
        ({"name": "a/b"}, "name: "),
        (
            {"checkpoint": "/nowhere"},
            "--checkpoint /nowhere: not a folder, none of the packaged .* not a name of the hub",
        ),
        ({"parameters": {"pooling": "max"}}, "pooling: 'max'"),
        ({"parameters": {"speed": "9"}}, "speed: not a parameter"),
        ({"repository": COMMITTED}, "holds the built-in models"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_written(wish, tmp_path, changes, match):
    before = everything(tmp_path), sorted(os.listdir(tmp_path))
    with pytest.raises(RepositoryError, match=match):
        add(replace(wish, **changes), quiet)
    assert (everything(tmp_path), sorted(os.listdir(tmp_path))) == before


def test_a_broken_checkpoint_is_refused_before_anything_is_written(wish, checkpoint):
    (checkpoint / "model.safetensors").write_bytes(b"")
    with pytest.raises(RepositoryError, match="is not whole"):
        add(wish, quiet)
    assert not wish.repository.exists()


def test_a_file_in_the_place_of_the_repository(wish):
    wish.repository.touch()
    with pytest.raises(RepositoryError, match="is not a folder"):
        add(wish, quiet)


def test_what_exists_is_replaced_by_force_alone(wish):
    add(wish, quiet)
    before = everything(wish.repository)
    with pytest.raises(RepositoryError, match=r"'docs' exists in .*: docs\.tokenizer, .*") as caught:
        add(wish, quiet)
    assert "--force" in caught.value.remedy
    assert everything(wish.repository) == before
    add(replace(wish, door=Door.STREAM, force=True), quiet)
    assert sorted(os.listdir(wish.repository)) == ["docs.embedding_stream", "docs.stream", "docs.tokenizer"]


def test_somebody_elses_folder_is_not_replaced(wish):
    (wish.repository / "docs" / "1").mkdir(parents=True)
    (wish.repository / "docs" / "config.pbtxt").write_text('name: "docs"')
    with pytest.raises(RepositoryError, match="was not written by `lazuli model add docs`, so it stays"):
        add(replace(wish, force=True), quiet)
    with pytest.raises(RepositoryError, match="so it stays"):
        folders_of(wish.repository, "docs")


def test_a_full_disk_leaves_nothing_behind(wish, monkeypatch):
    def full(repository, folders, replaced):
        raise OutsideError("nothing was changed: No space left on device")

    monkeypatch.setattr(addition, "put", full)
    with pytest.raises(OutsideError):
        add(wish, quiet)
    assert not wish.repository.exists()


def test_the_catalog_knows_what_was_added(wish):
    add(replace(wish, parameters={"max_seq_length": "32", "dtype": "float32"}), quiet)
    add(replace(wish, name="plain", door=Door.UNARY), quiet)
    docs, plain = entries(wish.repository)
    assert (docs.name, docs.architecture, docs.dimension, docs.limit) == ("docs", "BertModel", "32", "32")
    assert (docs.pooling, docs.dtype, docs.checkpoint, docs.fault) == ("mean", "float32", wish.checkpoint, "")
    assert (plain.name, plain.limit, plain.dtype, plain.doors) == ("plain", "64", "auto", [Door.UNARY])
    assert parameters_of("docs", [COMMITTED, wish.repository])["max_seq_length"] == "32"
    with pytest.raises(RepositoryError, match="there is no model 'other' in"):
        parameters_of("other", [COMMITTED, wish.repository])


def test_the_catalog_knows_the_built_in_model(monkeypatch, checkpoint):
    (entry,) = entries(COMMITTED)
    assert (entry.name, entry.dimension, entry.limit, entry.fault) == ("embed", "384", "256", "")
    monkeypatch.setenv("LAZULI_CHECKPOINT", str(checkpoint))
    assert entries(COMMITTED)[0].dimension == "32"


@pytest.mark.parametrize(
    ("lost", "fault"),
    [
        ("models/docs.embedding", r"the folder docs\.embedding is missing"),
        ("models/docs.tokenizer/1", r"docs\.tokenizer/1 is missing"),
        ("tiny", "is neither a folder"),
        ("tiny/model.safetensors", r"has neither model\.safetensors"),
        ("tiny/tokenizer.json", r"tokenizer\.json is missing"),
        ("tiny/config.json", r"config\.json is missing"),
    ],
)
def test_the_catalog_says_what_is_missing(wish, tmp_path, lost, fault):
    import re

    add(wish, quiet)
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    (entry,) = entries(wish.repository)
    assert re.search(fault, entry.fault), entry.fault


def test_remove_takes_exactly_the_folders_of_the_model(wish):
    for name in ("docs", "docs2", "docs.v2"):
        add(replace(wish, name=name), quiet)
    (wish.repository / "docs.notes").mkdir()
    folders = folders_of(wish.repository, "docs")
    remove(wish.repository, folders)
    left = sorted(os.listdir(wish.repository))
    assert len(left) == 11
    assert not set(left) & set(folders)
    assert [entry.name for entry in entries(wish.repository)] == ["docs.v2", "docs2"]
    assert Path(wish.checkpoint).is_dir()


def test_remove_takes_the_rest_of_a_broken_model(wish):
    add(wish, quiet)
    shutil.rmtree(wish.repository / "docs")
    shutil.rmtree(wish.repository / "docs.stream")
    remove(wish.repository, folders_of(wish.repository, "docs"))
    assert os.listdir(wish.repository) == []


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("embed", "built-in"),
        ("tokenizer", "built-in"),
        ("other", "no model 'other' in .*; there are: docs"),
        ("../x", "name"),
    ],
)
def test_remove_refuses(wish, name, match):
    add(wish, quiet)
    with pytest.raises(RepositoryError, match=match):
        folders_of(wish.repository, name)


def test_a_checkpoint_with_odd_characters(wish, checkpoint):
    odd = checkpoint.rename(checkpoint.parent / 'mödel "模型" \\ x')
    add(replace(wish, checkpoint=str(odd)), quiet)
    assert entries(wish.repository)[0].checkpoint == str(odd)
    with pytest.raises(RepositoryError, match="would be read as a variable"):
        add(replace(wish, name="b", checkpoint=str(shutil.copytree(odd, odd.parent / "${HOME}"))), quiet)


def test_prompts_beside_those_of_the_checkpoint(wish):
    added = add(replace(wish, parameters={"prompts": json.dumps({"title": "w3 "})}), quiet)
    assert list(added.facts.prompts) == ["query", "document", "title"]


class TestOtherTasks:
    """What a checkpoint with a head is made into; found by its architecture, or asked for."""

    def test_three_folders_for_a_reranker(self, wish, reranker):
        added = add(replace(wish, checkpoint=str(reranker)), quiet)
        assert added.model == ModelNames("docs", Task.RERANK)
        assert sorted(os.listdir(wish.repository)) == ["docs", "docs.rerank_tokenizer", "docs.reranking"]
        assert config(wish, "docs").steps == ["docs.rerank_tokenizer", "docs.reranking"]
        engine = EngineConfig.from_parameters(config(wish, "docs.reranking").parameters)
        assert engine == EngineConfig(str(reranker), task="rerank")
        reader = PairTokenizerConfig.from_parameters(config(wish, "docs.rerank_tokenizer").parameters)
        assert reader == PairTokenizerConfig(str(reranker))
        facts = added.facts
        assert (facts.task, facts.dimension, facts.max_seq_length) == (Task.RERANK, 1, 64)
        assert (facts.pooling, facts.labels, facts.activation) == ("cls", (), "identity")

    def test_three_folders_for_a_classifier(self, wish, classifier):
        given = {"max_seq_length": "32", "prompts": '{"t": "w1 "}'}
        added = add(replace(wish, checkpoint=str(classifier), parameters=given), quiet)
        assert sorted(os.listdir(wish.repository)) == ["docs", "docs.classification", "docs.classify_tokenizer"]
        engine = EngineConfig.from_parameters(config(wish, "docs.classification").parameters)
        assert engine == EngineConfig(str(classifier), task="classify")
        reader = TokenizerConfig.from_parameters(config(wish, "docs.classify_tokenizer").parameters)
        assert (reader.checkpoint, reader.max_seq_length, reader.parsed_prompts()) == (
            str(classifier),
            32,
            {"t": "w1 "},
        )
        assert (added.facts.labels, added.facts.activation) == (("good", "bad", "neither"), "softmax")

    def test_three_folders_for_chunks_of_documents(self, wish):
        given = {"separator": "", "max_seq_length": "40"}
        added = add(replace(wish, task=Task.CONTEXT, parameters=given), quiet)
        assert sorted(os.listdir(wish.repository)) == ["docs", "docs.context_tokenizer", "docs.contextual"]
        engine = EngineConfig.from_parameters(config(wish, "docs.contextual").parameters)
        assert engine == EngineConfig(wish.checkpoint, task="context")
        reader = ContextTokenizerConfig.from_parameters(config(wish, "docs.context_tokenizer").parameters)
        assert (reader.checkpoint, reader.separator) == (wish.checkpoint, "")
        assert (added.facts.task, added.facts.max_seq_length, added.facts.pooling) == (Task.CONTEXT, 40, "mean")
        (entry,) = entries(wish.repository)
        assert (entry.task, entry.limit, entry.fault) == (Task.CONTEXT, "40", "")

    @pytest.mark.parametrize(
        ("parameters", "match"),
        [
            ({"pooling": "cls"}, "pooling: 'cls', but the vectors of chunks are means of their tokens"),
            ({"separator": "<s>"}, "separator: '<s>' is not a special token of this checkpoint"),
        ],
    )
    def test_chunks_that_cannot_be(self, wish, parameters, match):
        with pytest.raises(RepositoryError, match=match):
            add(replace(wish, task=Task.CONTEXT, parameters=parameters), quiet)

    def test_what_the_catalog_says(self, wish, reranker, classifier):
        add(replace(wish, name="a", checkpoint=str(reranker), parameters={"pair_truncation": "only_second"}), quiet)
        add(replace(wish, name="b", checkpoint=str(classifier), task=Task.CLASSIFY), quiet)
        one, other = entries(wish.repository)
        assert (one.task, one.output, one.limit, one.doors, one.fault) == (
            Task.RERANK,
            "score",
            "64",
            [Door.UNARY],
            "",
        )
        assert (other.task, other.output, other.limit, other.fault) == (Task.CLASSIFY, "3 labels", "64", "")
        for name, task in (("a", "rerank"), ("b", "classify")):
            engine, reader = configs_of(parameters_of(name, [wish.repository]))
            assert (engine.task, reader.checkpoint) == (task, engine.checkpoint)
            remove(wish.repository, folders_of(wish.repository, name))
        assert os.listdir(wish.repository) == []

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"task": Task.EMBED}, "is made for the task rerank"),
            ({"task": Task.CLASSIFY}, "has one label, which every text would get; task rerank takes it"),
            ({"task": Task.CLASSIFY, "parameters": {"pair_template": "qwen3"}}, "pair_template: not a parameter"),
            ({"parameters": {"pooling": "cls"}}, "pooling: not a parameter of this model; known are attention, "),
            ({"parameters": {"pair_truncation": "x"}}, "pair_truncation: 'x' is not one of"),
            ({"parameters": {"max_seq_length": "65"}}, "max_seq_length: 65, but the model takes 64"),
            ({"door": Door.STREAM}, "--door stream: a model for the task rerank has the door unary only"),
        ],
    )
    def test_what_does_not_fit_is_told_and_nothing_written(self, wish, reranker, changes, match):
        with pytest.raises(RepositoryError, match=match):
            add(replace(wish, checkpoint=str(reranker), **changes), quiet)
        assert not wish.repository.exists()

    def test_an_embedding_model_can_score_by_its_vectors(self, wish):
        facts = add(replace(wish, task=Task.RERANK), quiet).facts
        assert (facts.task, facts.activation, facts.max_seq_length) == (Task.RERANK, "", 64)
        (entry,) = entries(wish.repository)
        assert (entry.task, entry.limit, entry.fault) == (Task.RERANK, "64", "")

    def test_a_missing_head_is_named(self, wish, reranker):
        tensors = load_file(reranker / "model.safetensors")
        del tensors["classifier.weight"]
        save_file(tensors, reranker / "model.safetensors")
        with pytest.raises(RepositoryError, match=r"classifier\.weight"):
            add(replace(wish, checkpoint=str(reranker)), quiet)

    def test_a_model_for_vectors_is_replaced_by_one_that_reranks_and_back(self, wish, reranker):
        add(wish, quiet)
        with pytest.raises(RepositoryError, match=r"'docs' exists in .*: docs\.tokenizer, "):
            add(replace(wish, checkpoint=str(reranker)), quiet)
        add(replace(wish, checkpoint=str(reranker), force=True), quiet)
        assert sorted(os.listdir(wish.repository)) == ["docs", "docs.rerank_tokenizer", "docs.reranking"]
        add(replace(wish, force=True), quiet)
        assert len(os.listdir(wish.repository)) == 5

    def test_on_the_hub_its_small_files_tell_the_task(self, wish, reranker, monkeypatch):
        weights = (reranker / "model.safetensors").rename(reranker.parent / "later")
        fetched = []

        def fetch(name, check, show):
            check(reranker)
            weights.rename(reranker / "model.safetensors")
            fetched.append(name)
            return reranker

        monkeypatch.setattr("lazuli.repository.checkpoint_source.fetch", fetch)
        hub = replace(wish, checkpoint="org/tiny")
        with pytest.raises(RepositoryError, match="pooling: not a parameter of this model"):
            add(replace(hub, parameters={"pooling": "cls"}), quiet)
        with pytest.raises(RepositoryError, match="is made for the task rerank"):
            add(replace(hub, task=Task.EMBED), quiet)
        assert not fetched
        assert add(hub, quiet).model.task is Task.RERANK
