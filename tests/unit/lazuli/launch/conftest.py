import stat
import sys
from pathlib import Path

import pytest

from lazuli.launch import process, shared_memory
from lazuli.launch.command import Launch, build_launch
from lazuli.launch.options import ServeOptions
from lazuli.launch.preflight import free_ports
from lazuli.launch.probe import Prober
from lazuli.launch.server_binary import ServerBinary

FAKE_SERVER = Path(__file__).parent / "fake_tritonserver.py"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """No test touches the user's cache, state or shared memory."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("LAZULI_MODEL_REPOSITORY", raising=False)
    monkeypatch.delenv("LAZULI_CHECKPOINT", raising=False)


@pytest.fixture
def repository(tmp_path):
    for name in ("embed", "embed_stream", "tokenizer"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").touch()
    return tmp_path / "models"


@pytest.fixture
def shm(tmp_path, monkeypatch):
    """A folder in the place of /dev/shm, in which the fake server leaves a region."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setenv("FAKE_SHM", str(folder))
    monkeypatch.setattr(process, "remove_regions", lambda prefix: shared_memory.remove_regions(prefix, folder))
    return folder


@pytest.fixture
def fake_server(tmp_path):
    """An executable that starts the fake server."""
    path = tmp_path / "opt" / "bin" / "tritonserver"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_SERVER} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def options(fake_server, repository, monkeypatch):
    """Options that start the fake server, which speaks HTTP only."""
    monkeypatch.setattr(Prober, "probe_everywhere", Prober.probe)
    http_port, grpc_port, metrics_port = free_ports(3)
    return ServeOptions(
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        model_repositories=(repository,),
        tritonserver=fake_server,
        exit_timeout_s=1,
        start_timeout_s=30,
    )


@pytest.fixture
def launch(options, shm) -> Launch:
    return build_launch(options)


@pytest.fixture
def wheel(tmp_path) -> ServerBinary:
    """What the wheel looks like."""
    root = tmp_path / "wheel"
    for name in ("backend", "stubs", "nvidia_pytriton.libs"):
        (root / name).mkdir(parents=True)
    (root / "backend" / "libtriton_python.so").write_bytes(b"backend")
    (root / "backend" / "triton_python_backend_utils.py").write_text("utils")
    stub = root / "stubs" / "triton_python_backend_stub"
    stub.write_bytes(b"\0libpython3.11.so.1.0\0")
    return ServerBinary(root / "tritonserver", stub, root / "backend", root / "nvidia_pytriton.libs", "wheel 1.0")
