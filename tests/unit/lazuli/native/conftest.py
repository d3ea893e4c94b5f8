"""Models that C++ can compute, in torch and in C++."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lazuli.attention.sdpa import SdpaAttention
from lazuli.cache_folder import find_cache_folder
from lazuli.checkpoint import load_checkpoint
from lazuli.models.bert import BertModel
from lazuli.models.registry import load_model
from lazuli.native.accelerate import make_native
from lazuli.native.bert import NativeBert
from lazuli.native.library import load_library

Models = tuple[BertModel, NativeBert]


@pytest.fixture
def load_bert() -> Callable[[Path], BertModel]:
    """A checkpoint in torch."""

    def load(folder: Path) -> BertModel:
        model = load_model(load_checkpoint(str(folder)), SdpaAttention(), torch.device("cpu"), torch.float32)
        assert isinstance(model, BertModel)
        return model

    return load


@pytest.fixture
def load_both(
    tmp_path: Path, write_bert: Callable[..., Path], load_bert: Callable[[Path], BertModel]
) -> Callable[..., Models]:
    """A model of random weights, in torch and in C++."""

    def load(threads: int = 2, **changes: object) -> Models:
        sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96, **changes}
        model = load_bert(write_bert(tmp_path, **sizes))
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return model, make_native(model, load_library(find_cache_folder(None) / "native"))
        finally:
            torch.set_num_threads(before)

    return load
