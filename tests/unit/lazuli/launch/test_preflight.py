import socket
from dataclasses import replace

import pytest

from lazuli.launch import preflight
from lazuli.launch.errors import LaunchError
from lazuli.launch.options import ServeOptions


@pytest.fixture
def used_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_the_used_port_is_named_and_no_other(options: ServeOptions, used_port):
    with pytest.raises(LaunchError, match=f"--grpc-port {used_port}: already in use") as caught:
        preflight.check_ports(replace(options, grpc_port=used_port))
    assert str(options.http_port) not in str(caught.value)


def test_free_ports_are_free(options):
    preflight.check_ports(options)


def test_an_address_of_another_machine(options):
    with pytest.raises(LaunchError, match="Cannot assign requested address"):
        preflight.check_ports(replace(options, host="192.0.2.1"))


def test_no_shared_memory(tmp_path):
    with pytest.raises(LaunchError, match="there is no"):
        preflight.check_shared_memory(tmp_path / "shm")


def test_little_shared_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "free_bytes", lambda folder: 1 << 20)
    with pytest.raises(LaunchError, match="has 1 MiB free, but 48 MiB are needed") as caught:
        preflight.check_shared_memory(tmp_path)
    assert "--shm-size" in caught.value.remedy


def test_each_process_needs_its_share_of_shared_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "free_bytes", lambda folder: 64 << 20)
    preflight.check_shared_memory(tmp_path, 4)
    with pytest.raises(LaunchError, match="has 64 MiB free, but 80 MiB are needed"):
        preflight.check_shared_memory(tmp_path, 5)


def test_numpy_2_is_refused_with_the_wheel_only(wheel):
    preflight.check_numpy(wheel, "1.26.4")
    preflight.check_numpy(replace(wheel, backend=None), "2.1.0")
    with pytest.raises(LaunchError, match=r"numpy 2\.1\.0 crashes the stub"):
        preflight.check_numpy(wheel, "2.1.0")


def test_a_checkpoint_path_must_exist(tmp_path):
    preflight.check_checkpoint(None)
    preflight.check_checkpoint("all-MiniLM-L6-v2")
    preflight.check_checkpoint(str(tmp_path))
    with pytest.raises(LaunchError, match="checkpoint /nowhere does not exist"):
        preflight.check_checkpoint("/nowhere")
