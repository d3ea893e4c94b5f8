import pytest

from lazuli.launch import command
from lazuli.launch.gpus import gpu_environment
from lazuli.launch.options import ServeOptions
from lazuli.launch.server_binary import ServerBinary


@pytest.mark.parametrize(
    ("device", "seen", "expected"),
    [
        (None, None, {}),
        ("auto", "0,1", {}),
        ("cuda", None, {}),
        ("cpu", "0,1", {"CUDA_VISIBLE_DEVICES": ""}),
        ("cuda:1", None, {"CUDA_VISIBLE_DEVICES": "1", "LAZULI_DEVICE": "cuda"}),
        ("cuda:1", "4, 6", {"CUDA_VISIBLE_DEVICES": "6", "LAZULI_DEVICE": "cuda"}),
        ("cuda:0", "GPU-3f,GPU-77", {"CUDA_VISIBLE_DEVICES": "GPU-3f", "LAZULI_DEVICE": "cuda"}),
        ("cuda:2", "4,6", {}),
        ("cuda:0", "", {}),
    ],
)
def test_what_the_server_sees(device, seen, expected):
    assert gpu_environment(device, {} if seen is None else {"CUDA_VISIBLE_DEVICES": seen}) == expected


def environment_of(inherited, **options):
    server = ServerBinary("/opt/tritonserver/bin/tritonserver", None, None, None, "of no version")
    return command.server_environment(ServeOptions(**options), server, inherited)


def test_an_option_goes_before_the_environment():
    environment = environment_of({"LAZULI_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "2,3"}, device="cuda:1")
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["LAZULI_DEVICE"]) == ("3", "cuda")


def test_the_environment_alone_counts_too():
    assert environment_of({"LAZULI_DEVICE": "cpu"})["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in environment_of({"LAZULI_DEVICE": "auto"})
