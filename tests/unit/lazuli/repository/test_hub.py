"""The hub is played by functions in the place of its two calls; the cache is real where it says so."""

import shutil
import sys
from types import SimpleNamespace

import huggingface_hub
import pytest
from typer.testing import CliRunner

from lazuli import cli
from lazuli.repository.errors import OutsideError, RepositoryError
from lazuli.repository.hub import SMALL_FILES, WEIGHTS, fetch
from lazuli.repository.hub_name import HubName

NAME = HubName("org/tiny", "v1")
COMMIT = "0" * 39 + "1"


@pytest.fixture
def said():
    return []


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub with a list of files; `reach` may be set to an error of the network."""
    hub = SimpleNamespace(files=["config.json", "tokenizer.json", "model.safetensors"], calls=[], reach=None)
    hub.folder = tmp_path / "snapshots" / COMMIT

    def model_info(self, repository, revision):
        if hub.reach:
            raise hub.reach
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in hub.files])

    def snapshot_download(repository, *, revision, allow_patterns, ignore_patterns, local_files_only=False):
        hub.calls.append((repository, revision, allow_patterns, local_files_only))
        if hub.reach and not hub.folder.exists():
            raise huggingface_hub.errors.LocalEntryNotFoundError("not cached")
        return str(hub.folder)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return hub


def nothing(folder):
    pass


def test_small_files_are_looked_at_before_weights_are_fetched(hub, said):
    checked = []
    assert fetch(NAME, checked.append, said.append) == hub.folder
    assert checked == [hub.folder]
    assert hub.calls == [
        ("org/tiny", "v1", SMALL_FILES, False),
        ("org/tiny", "v1", SMALL_FILES + WEIGHTS, False),
    ]
    assert said == ["fetching org/tiny@v1 from the hub"]


def test_what_is_not_supported_spares_the_weights(hub, said):
    def refuse(folder):
        raise RepositoryError("the architecture T5 is not supported")

    with pytest.raises(RepositoryError, match="T5"):
        fetch(NAME, refuse, said.append)
    assert len(hub.calls) == 1


def test_old_weights_are_refused_before_anything_is_fetched(hub, said):
    hub.files = ["config.json", "pytorch_model.bin"]
    with pytest.raises(RepositoryError, match=r"its weights are in pytorch_model\.bin, a pickle") as caught:
        fetch(NAME, nothing, said.append)
    assert " org/tiny NEW_FOLDER" in caught.value.remedy
    hub.files = ["README.md"]
    with pytest.raises(RepositoryError, match="there are no safetensors on the hub"):
        fetch(NAME, nothing, said.append)
    assert hub.calls == []


def test_without_a_network_the_cache_is_taken_and_that_is_said(hub, said):
    hub.folder.mkdir(parents=True)
    hub.reach = ConnectionError("no route to host\nand more")
    assert fetch(NAME, nothing, said.append) == hub.folder
    assert hub.calls == [("org/tiny", "v1", SMALL_FILES + WEIGHTS, True)]
    assert said == [f"the hub does not answer (no route to host): taking org/tiny@v1 from the cache, commit {COMMIT}"]


def test_without_a_network_and_a_copy(hub, said):
    hub.reach = TimeoutError()
    with pytest.raises(
        OutsideError, match=r"there is no such folder, .* \(TimeoutError\(\)\), and the cache has no copy"
    ):
        fetch(NAME, nothing, said.append)


def test_a_download_that_breaks_off(hub, said, monkeypatch):
    def broken(*args, **settings):
        raise RuntimeError("connection reset")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", broken)
    with pytest.raises(OutsideError, match="org/tiny@v1: the download failed: connection reset") as caught:
        fetch(NAME, nothing, said.append)
    assert caught.value.exit_code == 1


def test_without_the_package(monkeypatch, said):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(RepositoryError, match="needs the package huggingface_hub") as caught:
        fetch(NAME, nothing, said.append)
    assert "lazuli[hub]" in caught.value.remedy


@pytest.fixture
def real_cache(monkeypatch, tmp_path, checkpoint):
    """A cache as the package itself lays it out, and no network."""
    cache = tmp_path / "hub"
    snapshot = cache / "models--org--tiny" / "snapshots" / COMMIT
    shutil.copytree(checkpoint, snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return snapshot


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_the_packages_own_cache_offline(real_cache, said, revision):
    assert fetch(HubName("org/tiny", revision), nothing, said.append) == real_cache
    # Or it goes without asking: a commit can be found by its name.
    assert said[0].startswith("the hub does not answer (Cannot reach http")
    assert "offline mode is enabled" in said[0]
    assert said[0].endswith(COMMIT)


@pytest.mark.parametrize("name", [HubName("org/other"), HubName("org/tiny", "v9")])
def test_what_the_packages_own_cache_lacks_offline(real_cache, said, name):
    with pytest.raises(OutsideError, match="and the cache has no copy"):
        fetch(name, nothing, said.append)


def test_a_name_of_the_hub_can_be_added_offline(real_cache, tmp_path):
    command = ["model", "add", "docs", "--checkpoint", "org/tiny", "--repository", str(tmp_path / "models")]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0, result.output
    assert f"checkpoint    {real_cache}" in result.stdout
    failed = CliRunner().invoke(cli.app, ["model", "add", "other", "--checkpoint", "org/other"])
    assert failed.exit_code == 1
    assert failed.stderr.startswith("lazuli: org/other: there is no such folder, the hub does not give it (")
