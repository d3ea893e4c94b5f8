"""Tiny random checkpoints with heads for single tokens, and engines for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lazuli.config import EngineConfig
from lazuli.engine import Engine

XLM_ROBERTA = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 100,
    "max_position_embeddings": 66,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}


@pytest.fixture
def rows_of() -> Callable[..., list[np.ndarray]]:
    """Ids as an XLM-RoBERTa tokenizer makes them: 0 first, 2 last; few others, so that they repeat."""

    def make(*lengths: int, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [np.array([0, *rng.integers(3, 30, size=length - 2), 2], dtype=np.int32) for length in lengths]

    return make


@pytest.fixture
def write_bge_m3() -> Callable[..., Any]:
    """Write a checkpoint as bge-m3's; returns the model and its two layers, as FlagEmbedding has them."""

    def write(folder: Path, *, suffix: str = ".pt", multi_size: int = 32, **changes: Any) -> tuple[Any, ...]:
        from safetensors.torch import save_file
        from transformers import XLMRobertaConfig, XLMRobertaModel

        torch.manual_seed(0)
        model = XLMRobertaModel(XLMRobertaConfig(**(XLM_ROBERTA | changes)), add_pooling_layer=False).eval()
        for parameter in model.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        size = XLM_ROBERTA["hidden_size"]
        sparse, multi = torch.nn.Linear(size, 1), torch.nn.Linear(size, multi_size)
        for name, layer in (("sparse_linear", sparse), ("colbert_linear", multi)):
            if suffix == ".pt":
                torch.save(layer.state_dict(), folder / f"{name}.pt")
            else:
                save_file(layer.state_dict(), str(folder / f"{name}.safetensors"))
        names = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
        entries = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in names.items()]
        (folder / "modules.json").write_text(json.dumps(entries))
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
        return model, sparse, multi

    return write


@pytest.fixture
def make_engine() -> Callable[..., Engine]:
    def make(folder: Path, **parameters: Any) -> Engine:
        config = EngineConfig(**({"checkpoint": str(folder), "dtype": "float32"} | parameters))
        return Engine(config, torch.device("cpu"))

    return make
