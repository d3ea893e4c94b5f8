import logging

import pytest
import torch

from lazuli.attention.sdpa import SdpaAttention
from lazuli.attention.select import BACKENDS, select_attention
from lazuli.attention.torch_varlen import TorchVarlenAttention
from lazuli.errors import ConfigError


@pytest.mark.parametrize(
    ("device", "dtype", "head_dim", "expected"),
    [
        ("cpu", torch.float32, 32, SdpaAttention),
        ("cpu", torch.bfloat16, 32, SdpaAttention),
        ("cuda", torch.bfloat16, 32, TorchVarlenAttention),
        ("cuda", torch.float32, 32, SdpaAttention),
        ("cuda", torch.bfloat16, 20, SdpaAttention),
    ],
)
def test_the_best_that_can_run_is_chosen(device, dtype, head_dim, expected):
    assert type(select_attention(None, torch.device(device), dtype, head_dim)) is expected


def test_by_name():
    assert type(select_attention("sdpa", torch.device("cuda"), torch.bfloat16, 32)) is SdpaAttention


def test_a_name_is_never_replaced_by_another():
    with pytest.raises(ConfigError, match="attention: 'torch_varlen' cannot be used on cpu: it needs a GPU"):
        select_attention("torch_varlen", torch.device("cpu"), torch.bfloat16, 32)


def test_an_unknown_name_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match="attention: 'flash' is not one of auto, torch_varlen, sdpa"):
        select_attention("flash", torch.device("cpu"), torch.float32, 32)


@pytest.mark.parametrize(("name", "how"), [(None, "chosen"), ("sdpa", "asked for")])
def test_the_choice_is_logged(caplog, name, how):
    with caplog.at_level(logging.INFO, logger="lazuli.attention.select"):
        select_attention(name, torch.device("cpu"), torch.float32, 32)
    assert f"attention backend: sdpa ({how})" in caplog.text


def test_names_are_unique():
    assert len({backend.name for backend in BACKENDS}) == len(BACKENDS)
