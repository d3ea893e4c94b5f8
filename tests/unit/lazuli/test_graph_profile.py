import json
import logging

import pytest

from lazuli.buckets import Bucket
from lazuli.graph_profile import GraphProfile, ProfileFile

IDENTITY = {"model": {"layers": 2}, "device": "a GPU", "versions": ["1", "2"]}
HITS = {Bucket(64, 1, 64): 3, Bucket(128, 16, 128): 70, Bucket(16, 1, 16): 3}


@pytest.fixture
def file(tmp_path):
    return ProfileFile(tmp_path / "cache", "model", IDENTITY)


def test_what_is_saved_is_loaded(file):
    assert file.save(GraphProfile(6144, HITS))
    loaded = file.load()
    assert (loaded.inflection, loaded.hits) == (6144, HITS)
    assert file.save(GraphProfile(None, {}))
    assert file.load() == GraphProfile()


def test_the_most_used_come_first():
    assert GraphProfile(None, HITS).most_used() == [Bucket(128, 16, 128), Bucket(16, 1, 16), Bucket(64, 1, 64)]


def test_a_missing_file_is_an_empty_profile(file, caplog):
    with caplog.at_level(logging.WARNING):
        assert file.load() == GraphProfile()
    assert not caplog.records


@pytest.mark.parametrize("change", [{"device": "another"}, {"model": {"layers": 3}}, {"versions": ["1", "3"]}])
def test_something_else_has_another_file(file, change, tmp_path):
    other = ProfileFile(tmp_path / "cache", "model", IDENTITY | change)
    file.save(GraphProfile(1, HITS))
    assert other.path != file.path
    assert other.load() == GraphProfile()


def test_a_name_of_any_letters(tmp_path):
    file = ProfileFile(tmp_path, "../a b/é" + "x" * 300, IDENTITY)
    assert file.path.parent == tmp_path / "graphs"
    assert file.save(GraphProfile(1, HITS))
    assert file.load().hits == HITS


def good():
    return {"inflection": 5, "buckets": [[64, 1, 64, 3]]}


@pytest.mark.parametrize(
    "change",
    [
        {"buckets": [[64, 1, 64]]},
        {"buckets": [[64, 1, 64, 3, 1]]},
        {"buckets": [[64, 1, 64, "3"]]},
        {"buckets": [[64, 1, 64, 0]]},
        {"buckets": [[64, 1, 64, True]]},
        {"buckets": [[-64, 1, 64, 3]]},
        {"buckets": [64]},
        {"buckets": None},
        {"inflection": "5"},
        {"inflection": 0},
        {"format": 2},
        {"identity": "0"},
    ],
    ids=str,
)
def test_a_damaged_file_is_said_and_not_used(file, change, caplog):
    file.save(GraphProfile(5, {Bucket(64, 1, 64): 3}))
    content = json.loads(file.path.read_text())
    assert good().items() <= content.items()
    file.path.write_text(json.dumps(content | change))
    with caplog.at_level(logging.WARNING):
        assert file.load() == GraphProfile()
    assert "is not used" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": 1}'])
def test_so_is_anything_else(file, content, caplog):
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert file.load() == GraphProfile()
    assert "is not used" in caplog.text
    assert file.save(GraphProfile(7, HITS))
    assert file.load().inflection == 7


def test_a_folder_that_cannot_be_written_is_said(tmp_path, caplog):
    (tmp_path / "file").touch()
    file = ProfileFile(tmp_path / "file", "model", IDENTITY)
    with caplog.at_level(logging.WARNING):
        assert not file.save(GraphProfile(1, HITS))
        assert file.load() == GraphProfile()
    assert "cannot be written" in caplog.text


def test_nothing_else_is_left_behind(file):
    for _ in range(3):
        file.save(GraphProfile(1, HITS))
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


def test_a_write_that_fails_leaves_the_old_file(file, monkeypatch):
    file.save(GraphProfile(1, HITS))

    def fail(self, target):
        raise OSError("no space")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    assert not file.save(GraphProfile(2, {}))
    assert file.load().inflection == 1
