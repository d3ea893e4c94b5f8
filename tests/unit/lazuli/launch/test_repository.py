from pathlib import Path

import pytest

from lazuli.launch import repository as repositories
from lazuli.launch.errors import LaunchError
from lazuli.launch.folders import user_models
from lazuli.launch.options import Door
from lazuli.launch.repository import count_processes, find_repositories, model_names, models_to_load

COMMITTED = Path(__file__).resolve().parents[4] / "model_repository"


def make(folder, *names, python=()):
    for name in names:
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").touch()
        if name in python:
            (folder / name / "1" / "model.py").touch()
    return folder


def docs(folder, name="docs"):
    parts = [name + suffix for suffix in (".tokenizer", ".embedding", ".embedding_stream")]
    return make(folder, name, f"{name}.stream", *parts, python=parts)


def test_by_default_the_built_in_one_and_with_models_in_it_the_users():
    assert find_repositories() == [COMMITTED]
    docs(user_models())
    assert find_repositories() == [COMMITTED, user_models()]


def test_explicit_ones_and_the_built_in_one_by_name(tmp_path, monkeypatch):
    mine = docs(tmp_path / "models")
    monkeypatch.setenv("LAZULI_MODEL_REPOSITORY", "/nowhere")
    assert find_repositories([mine]) == [mine]
    assert find_repositories([str(mine), "built-in", mine]) == [mine, COMMITTED]


def test_a_folder_may_be_called_built_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = docs(tmp_path / "built-in")
    assert find_repositories(["./built-in"]) == [folder]


def test_the_variable_lists_several(tmp_path, monkeypatch):
    mine = docs(tmp_path / "models")
    monkeypatch.setenv("LAZULI_MODEL_REPOSITORY", f"built-in:{mine}")
    assert find_repositories() == [COMMITTED, mine]


def test_a_repository_must_hold_models(tmp_path, monkeypatch):
    with pytest.raises(LaunchError, match="is not a folder"):
        find_repositories([tmp_path / "nothing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(LaunchError, match="holds no model"):
        find_repositories([tmp_path / "empty"])
    monkeypatch.setenv("LAZULI_MODEL_REPOSITORY", str(tmp_path / "empty"))
    with pytest.raises(LaunchError, match=r"LAZULI_MODEL_REPOSITORY .* holds no model"):
        find_repositories()


def test_two_models_of_one_name_are_refused_with_both_places(tmp_path):
    with pytest.raises(LaunchError, match=r"the model docs is both in .*/a and in .*/b"):
        find_repositories([docs(tmp_path / "a"), docs(tmp_path / "b")])


def test_the_built_in_one_is_found_where_there_is_no_source_tree(tmp_path, monkeypatch):
    monkeypatch.setattr(repositories, "source_root", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LaunchError, match="this project's model repository is neither in"):
        find_repositories()
    monkeypatch.setenv("LAZULI_MODEL_REPOSITORY", f"{docs(tmp_path / 'mine')}:{COMMITTED}")
    assert repositories.built_in_repository() == COMMITTED


def test_folders_that_are_no_models_are_left_alone(tmp_path):
    repository = docs(tmp_path)
    make(repository / ".lazuli-x", "config.pbtxt")
    make(repository, ".hidden")
    (repository / "notes").mkdir()
    assert len(model_names(repository)) == 5
    assert models_to_load([repository], Door.BOTH) == model_names(repository)


@pytest.mark.parametrize(
    ("door", "wanted", "expected"),
    [
        (Door.UNARY, (), ["docs", "old", "embed"]),
        (Door.STREAM, (), ["docs.stream", "embed_stream"]),
        (Door.BOTH, ("docs",), ["docs", "docs.stream"]),
        (Door.UNARY, ("embed", "docs"), ["embed", "docs"]),
        (Door.BOTH, ("old",), ["old"]),
    ],
)
def test_doors_and_models_are_chosen_over_all_repositories(tmp_path, door, wanted, expected):
    one_door = make(docs(tmp_path), "old", "old.tokenizer", "old.embedding")
    assert sorted(models_to_load([one_door, COMMITTED], door, wanted)) == sorted(expected)


@pytest.mark.parametrize(
    ("door", "wanted", "expected"),
    [
        (Door.UNARY, (), ["docs", "judge"]),
        (Door.STREAM, (), ["docs.stream"]),
        (Door.BOTH, ("judge",), ["judge"]),
    ],
)
def test_a_model_that_reranks_has_one_door(tmp_path, door, wanted, expected):
    steps = ("judge.rerank_tokenizer", "judge.reranking")
    repository = make(docs(tmp_path), "judge", *steps, python=steps)
    assert models_to_load([repository], door, wanted) == expected
    assert count_processes([repository], Door.BOTH, ["judge"]) == 2


def test_a_door_that_no_model_has_is_named_by_one_that_could(tmp_path):
    repository = make(tmp_path, "judge", "judge.rerank_tokenizer", "judge.reranking")
    with pytest.raises(LaunchError, match="--door stream needs a model such as embed_stream, which"):
        models_to_load([repository], Door.STREAM)


def test_what_is_not_there_is_named(tmp_path):
    repository = make(tmp_path, "old", "old.tokenizer", "old.embedding")
    with pytest.raises(LaunchError, match=r"--model new: there is no such model in .*; there are: old"):
        models_to_load([repository], Door.BOTH, ["new"])
    with pytest.raises(LaunchError, match=r"--door stream needs a model such as old\.stream"):
        models_to_load([repository], Door.STREAM)


@pytest.mark.parametrize(
    ("door", "wanted", "expected"),
    [(Door.BOTH, (), 6), (Door.UNARY, (), 4), (Door.STREAM, ("docs",), 2), (Door.BOTH, ("embed",), 3)],
)
def test_processes_of_what_is_loaded_are_counted(tmp_path, door, wanted, expected):
    assert count_processes([docs(tmp_path), COMMITTED], door, wanted) == expected
