import logging
import os
from pathlib import Path

import pytest

from lazuli.cache_folder import find_cache_folder, keep_compiled_kernels

VARIABLES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)


def test_the_one_asked_for(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert find_cache_folder("/a/b") == Path("/a/b")
    assert find_cache_folder("~/b") == Path("/home/somebody/b")


def test_by_default_the_users(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert find_cache_folder(None) == Path("/caches/lazuli")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert find_cache_folder(None) == Path("/home/somebody/.cache/lazuli")


def test_compilers_keep_their_results_there(tmp_path):
    keep_compiled_kernels(tmp_path / "new")
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "new" / "triton")
    assert len({os.environ[name] for name in VARIABLES}) == len(VARIABLES)


def test_what_the_environment_says_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    keep_compiled_kernels(tmp_path)
    assert os.environ["TRITON_CACHE_DIR"] == "/elsewhere"


def test_a_folder_that_cannot_be_made_is_said_and_changes_nothing(tmp_path, caplog):
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        keep_compiled_kernels(tmp_path / "file" / "below")
    assert "cannot be written" in caplog.text
    assert "TRITON_CACHE_DIR" not in os.environ
