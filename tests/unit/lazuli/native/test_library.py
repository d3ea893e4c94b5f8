import os
import stat

import pytest

from lazuli.native.library import NativeError, load_library


@pytest.fixture(autouse=True)
def forget():
    """Nothing that was loaded before counts."""
    load_library.cache_clear()
    yield
    load_library.cache_clear()


def compiler(folder, script):
    """A command that stands for a compiler."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_it_is_compiled_once(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("CXX", compiler(tmp_path, f'echo "$@" >> {log}\nexec c++ -O0 "$@"'))
    for _ in range(2):
        assert load_library(tmp_path / "kept").bert_new
        load_library.cache_clear()
    assert log.read_text().count("-shared") == 1
    assert [path.suffix for path in (tmp_path / "kept").iterdir() if path.name != "lock"] == [".so"]


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NativeError, match=r"no C\+\+ compiler is on PATH \(c\+\+, g\+\+, clang\+\+\)"):
        load_library(tmp_path / "kept")


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    script = 'case "$1" in --version) echo 1;; *) echo "unknown flag" >&2; exit 3;; esac'
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    with pytest.raises(NativeError, match="compiler failed: unknown flag"):
        load_library(tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["lock"]


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    assert load_library(tmp_path / "file" / "native").bert_new
    assert "compiled anew at each start" in caplog.text
    assert os.listdir(tmp_path) == ["file"]
