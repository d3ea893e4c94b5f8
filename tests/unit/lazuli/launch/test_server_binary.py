from pathlib import Path

import pytest

from lazuli.launch import libpython, server_binary
from lazuli.launch.errors import LaunchError
from lazuli.launch.server_binary import find_server, python_tag, stub_python


@pytest.fixture
def bare_machine(monkeypatch, tmp_path):
    """Neither container nor wheel, and an empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(server_binary, "CONTAINER_BINARY", tmp_path / "no-container")
    monkeypatch.setattr(server_binary, "wheel_server", lambda: None)


def add_stub(server: Path, name: str) -> None:
    stub = server.parent.parent / "backends" / "python" / "triton_python_backend_stub"
    stub.parent.mkdir(parents=True)
    stub.write_bytes(b"\x7fELF\0" + name.encode() + b"\0libc.so.6\0")


def test_without_any_server_the_error_says_how_to_get_one(bare_machine):
    with pytest.raises(LaunchError, match="no tritonserver") as caught:
        find_server()
    assert "pip install" in caught.value.remedy


def test_a_server_on_path_comes_first(bare_machine, monkeypatch, fake_server, wheel):
    monkeypatch.setenv("PATH", str(fake_server.parent))
    monkeypatch.setattr(server_binary, "wheel_server", lambda: wheel)
    assert find_server().path == fake_server


def test_a_server_for_another_python_is_passed_over(bare_machine, monkeypatch, fake_server, wheel):
    add_stub(fake_server, "libpython3.7.so.1.0")
    monkeypatch.setenv("PATH", str(fake_server.parent))
    monkeypatch.setattr(server_binary, "wheel_server", lambda: wheel)
    assert find_server() == wheel


def test_an_explicit_server_for_another_python_is_an_error(bare_machine, fake_server):
    add_stub(fake_server, "libpython3.7.so.1.0")
    with pytest.raises(LaunchError, match=r"runs Python 3\.7"):
        find_server(fake_server)


def test_the_container_is_found(bare_machine, monkeypatch, fake_server):
    add_stub(fake_server, f"libpython{python_tag()}.so.1.0")
    (fake_server.parent.parent / "TRITON_VERSION").write_text("2.73.0\n")
    monkeypatch.setattr(server_binary, "CONTAINER_BINARY", fake_server)
    server = find_server()
    assert server.version == "2.73.0"
    assert not server.is_wheel


def test_an_explicit_path_must_be_executable(tmp_path):
    with pytest.raises(LaunchError, match="not an executable file"):
        find_server(tmp_path)


@pytest.mark.parametrize(
    ("name", "version"),
    [("libpython3.12.so.1.0", "3.12"), ("libpython3-419a3a08.13.so.1.0", "3.13"), ("libfoo.so", None)],
)
def test_the_stub_tells_its_python(tmp_path, name, version):
    stub = tmp_path / "stub"
    stub.write_bytes(b"\0" + name.encode() + b"\0")
    assert stub_python(stub) == version


def test_libpython_is_searched_in_the_folders_of_this_python(wheel, tmp_path, monkeypatch):
    monkeypatch.setattr(libpython, "candidate_folders", lambda: [tmp_path / "a", tmp_path / "b"])
    with pytest.raises(LaunchError, match=r"libpython3\.11\.so\.1\.0 .* is missing") as caught:
        libpython.libpython_folder(wheel)
    assert "libpython" in caught.value.remedy
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "libpython3.11.so.1.0").touch()
    assert libpython.libpython_folder(wheel) == tmp_path / "b"


def test_a_bundled_libpython_is_replaced_by_that_of_this_python(wheel, tmp_path, monkeypatch):
    wheel.stub.write_bytes(f"\0libpython3-0a1b.{python_tag()[2:]}.so.1.0\0".encode())
    (wheel.libraries / f"libpython3-0a1b.{python_tag()[2:]}.so.1.0").touch()
    own = tmp_path / f"libpython{python_tag()}.so.1.0"
    own.touch()
    monkeypatch.setattr(libpython, "candidate_folders", lambda: [tmp_path])
    for _ in range(2):  # the second time it is there already
        folder = libpython.libpython_folder(wheel, tmp_path / "cache")
        [link] = folder.iterdir()
        assert link.name == f"libpython3-0a1b.{python_tag()[2:]}.so.1.0"
        assert link.resolve() == own.resolve()
