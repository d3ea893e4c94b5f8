import os

import pytest

from lazuli.repository import model_folders
from lazuli.repository.errors import OutsideError
from lazuli.repository.model_folders import FolderContent, put, take_away

OLD, NEW = FolderContent("old", {"model.py": b"1"}), FolderContent("new", {"model.py": b"2"})

FULL = OSError(28, "No space left on device")


def tree(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    put(folder, {"a.step": OLD, "a": OLD})
    return folder


@pytest.fixture
def failing(monkeypatch):
    """Make the nth rename fail, for the first time only: the way back must work."""

    def make(number, error):
        left = [number]
        rename = os.rename

        def failing_rename(source, target):
            left[0] -= 1
            if left[0] == 0:
                raise error
            rename(source, target)

        monkeypatch.setattr(model_folders.os, "rename", failing_rename)

    return make


def test_put_makes_the_folders_and_nothing_else(repository):
    expected = {"a/1/model.py": "1", "a/config.pbtxt": "old", "a.step/1/model.py": "1", "a.step/config.pbtxt": "old"}
    assert tree(repository.parent / "models") == expected
    assert os.listdir(repository.parent) == ["models"]
    assert FolderContent.read(repository / "a") == OLD


def test_put_replaces(repository):
    put(repository, {"a": NEW}, replaced=["a.step", "a"])
    assert tree(repository) == {"a/1/model.py": "2", "a/config.pbtxt": "new"}
    assert os.listdir(repository.parent) == ["models"]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()])
def test_a_failure_at_any_move_changes_nothing(repository, failing, number, error):
    before = tree(repository.parent)
    failing(number, error)
    with pytest.raises(OutsideError if isinstance(error, OSError) else KeyboardInterrupt):
        put(repository, {"a.step": NEW, "a": NEW}, replaced=["a.step", "a"])
    assert tree(repository.parent) == before
    assert os.listdir(repository.parent) == ["models"]


def test_a_failure_in_a_new_repository_leaves_no_folder(tmp_path, failing):
    failing(2, FULL)
    with pytest.raises(OutsideError, match="nothing was changed: No space left on device"):
        put(tmp_path / "new" / "models", {"a": NEW, "b": NEW})
    assert os.listdir(tmp_path) == []


def test_what_somebody_else_put_there_meanwhile_stays(repository):
    with pytest.raises(OutsideError, match="exists"):
        put(repository, {"b": NEW, "a": NEW})
    assert "b" not in os.listdir(repository)
    assert tree(repository)["a/config.pbtxt"] == "old"


def test_take_away(repository, failing):
    failing(2, FULL)
    with pytest.raises(OutsideError):
        take_away(repository, ["a.step", "a"])
    assert len(tree(repository)) == 4
    take_away(repository, ["a"])
    assert os.listdir(repository) == ["a.step"]


def test_where_the_parent_cannot_be_written_the_repository_is_used(repository, monkeypatch):
    monkeypatch.setattr(model_folders.os, "access", lambda path, mode: path != repository.parent)
    put(repository, {"b": NEW})
    assert sorted(os.listdir(repository)) == ["a", "a.step", "b"]
