import pytest
import torch

pytest.importorskip("triton")

from lazuli.triton_kernels import early

CUDA = torch.device("cuda", 0)


@pytest.fixture
def capability(monkeypatch):
    def pretend(value):
        early._is_capable.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: value)

    yield pretend
    early._is_capable.cache_clear()


@pytest.mark.parametrize(("value", "expected"), [((8, 9), False), ((9, 0), True), ((10, 0), True)])
def test_from_hopper_on(capability, value, expected):
    capability(value)
    assert early.early_launch(CUDA) == expected
    assert early.launch_options(CUDA) == ({"EARLY": True, "launch_pdl": True} if expected else {"EARLY": False})


def test_not_in_the_interpreter():
    assert early.launch_options(torch.device("cpu")) == {"EARLY": False}


def test_a_measurement_may_turn_it_off_at_any_time(capability, monkeypatch):
    capability((9, 0))
    assert early.early_launch(CUDA)
    monkeypatch.setattr(early, "enabled", False)
    assert early.launch_options(CUDA) == {"EARLY": False}
