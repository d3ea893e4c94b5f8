import errno
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from lazuli_client.errors import DeadlineError, FileError, InvalidInputError
from lazuli_client.files import STDIN, fingerprint, naming


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "some/file: No space left on device"),
        (OSError("Error writing bytes"), "some/file: Error writing bytes"),
        (pa.ArrowInvalid("bad magic"), "some/file: bad magic"),
        (EOFError(), "some/file: EOFError"),
    ],
)
def test_an_error_without_a_name_gets_one(error, message):
    with pytest.raises(FileError) as caught, naming(Path("some/file")):
        raise error
    assert str(caught.value) == message


def test_what_the_file_is_not_is_said():
    with pytest.raises(FileError, match=r"^f: not Parquet: bad$"), naming(Path("f"), "not Parquet"):
        raise ValueError("bad")


@pytest.mark.parametrize("error", [InvalidInputError("x"), DeadlineError("x"), KeyError("x")])
def test_other_errors_pass(error):
    with pytest.raises(type(error)) as caught, naming(Path("f")):
        raise error
    assert caught.value is error


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("abc")
    os.utime(path, ns=(0, 0))
    return path


def test_fingerprint_changes_with_the_file(path):
    before = fingerprint(path)
    assert fingerprint(path) == fingerprint(path, before) == before
    path.write_text("abcd")
    assert fingerprint(path, before) != before
    assert json.loads(json.dumps(before)) == before


def test_a_touched_file_is_the_same_an_edited_one_of_the_same_size_is_not(path):
    before = fingerprint(path)
    os.utime(path, ns=(7, 7))
    assert fingerprint(path) != before
    assert fingerprint(path, before) == before
    path.write_text("abd")
    assert fingerprint(path, before) != before


def test_the_content_is_read_only_if_the_time_differs(path, monkeypatch):
    before = fingerprint(path)
    monkeypatch.setattr("lazuli_client.files.hashlib", None)
    assert fingerprint(path, before) == before


def test_a_fingerprint_of_another_kind_does_not_match(path):
    assert fingerprint(path, {"path": str(path), "size": 3}) == fingerprint(path)
    assert fingerprint(STDIN, {"path": "x"}) == {"path": "-"}
