from itertools import product
from pathlib import Path

import pytest

from lazuli.launch.options import Door
from lazuli.repository.errors import RepositoryError
from lazuli.repository.names import MAX_LENGTH, ModelNames, Task, all_folders, check_name, models_among
from lazuli_client.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[4] / "model_repository"
DOCS = ["docs.tokenizer", "docs.embedding", "docs.embedding_stream", "docs", "docs.stream"]


def test_folders_of_a_model_and_of_the_built_in_one():
    assert ModelNames("docs").folders() == DOCS
    assert ModelNames("docs").folders(Door.UNARY) == ["docs.tokenizer", "docs.embedding", "docs"]
    assert ModelNames("docs").folders(Door.STREAM) == ["docs.tokenizer", "docs.embedding_stream", "docs.stream"]
    assert sorted(ModelNames("embed").folders()) == sorted(path.name for path in REPOSITORY.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", ["docs", "embed"])
def test_the_client_knows_the_same_names(name):
    settings, model = Settings(model=name), ModelNames(name)
    assert settings.model == model.door(Door.UNARY)
    assert settings.stream_model == model.door(Door.STREAM)
    assert settings.token_model in model.folders(Door.UNARY)


def test_models_are_found_by_their_folders():
    built_in = ModelNames("embed").folders()
    assert [model.name for model in models_among([*DOCS, *built_in])] == ["docs", "embed"]
    assert [model.name for model in models_among(ModelNames("docs").folders(Door.STREAM))] == ["docs"]
    assert models_among(["docs", "docs.stream", "docs.tokenizer.old", "tokenizer"]) == []
    assert models_among(["docs.tokenizer", "docs.embedding"]) == []


@pytest.mark.parametrize("name", ["judge", "rerank", "classify", "a.b"])
@pytest.mark.parametrize("task", Task)
def test_a_model_tells_its_task_by_its_folders(name, task):
    folders = ModelNames(name, task).folders()
    assert models_among([*folders, *DOCS]) == sorted(
        [ModelNames(name, task), ModelNames("docs")], key=lambda model: model.name
    )
    assert models_among([folder for folder in folders if folder != f"{name}.tokenizer"]) == [ModelNames(name, task)]
    assert set(folders) <= set(all_folders(name))


def test_other_tasks_have_one_door():
    model = ModelNames("judge", Task.RERANK)
    assert model.folders() == ["judge.rerank_tokenizer", "judge.reranking", "judge"]
    assert (model.door(Door.UNARY), model.door(Door.STREAM)) == ("judge", None)
    assert model.doors_among(model.folders()) == [Door.UNARY]


def test_a_model_tells_its_doors():
    assert ModelNames("docs").doors_among(DOCS) == [Door.UNARY, Door.STREAM]
    assert ModelNames("docs").doors_among(["docs.stream", "embed"]) == [Door.STREAM]


@pytest.mark.parametrize("name", ["a", "Qwen3-Embedding-0.6B", "bge-small-en-v1.5", "x_embedding", "my-stream", "1"])
def test_good_names(name):
    check_name(name)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("", "must begin with a letter or digit"),
        (".x", "must begin"),
        ("-x", "must begin"),
        ("a/b", "'a/b' must begin with a letter or digit and hold letters, digits and . _ - only"),
        ("a b", "must begin"),
        ("naïve", "must begin"),
        ("a\n", "must begin"),
        ("x" * (MAX_LENGTH + 1), f"{MAX_LENGTH + 1} characters, but at most {MAX_LENGTH}"),
        ("embed", "'embed' is a built-in model; built in are embed, embed_stream, embedding, "),
        ("tokenizer", "built-in"),
        ("rerank", "built-in"),
        ("a.stream", r"'a\.stream' ends with \.stream, which names a part of a model"),
        ("a.tokenizer", "part of a model"),
        ("a.embedding_stream", "part of a model"),
        ("a.reranking", "part of a model"),
        ("a.classify_tokenizer", "part of a model"),
    ],
)
def test_bad_names_are_refused(name, match):
    with pytest.raises(RepositoryError, match=match):
        check_name(name, taken=["rerank"])


def test_two_models_never_need_the_same_folder():
    names = ["a", "b", "embed", "a.b", "a-embedding", "a_stream", "stream", "embedding-stream"]
    for one, other in product(names, repeat=2):
        if one != other:
            assert set(ModelNames(one).folders()).isdisjoint(ModelNames(other).folders())
