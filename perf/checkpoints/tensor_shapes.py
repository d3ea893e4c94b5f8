"""The tensors of each supported architecture, as its checkpoints name them.

Takes the content of a `config.json`, returns names and shapes. Knows nothing of values.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

Config = dict[str, Any]
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def tensor_shapes(config: Config) -> Shapes:
    """Name and shape of each tensor of a checkpoint, by its `config.json`."""
    return _TENSORS.get(config["architectures"][0], _bert_shapes)(config)


def _decoder_shapes(config: Config, norms: Sequence[str]) -> Shapes:
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
            **{f"{norm}_layernorm": (size,) for norm in norms},
        }.items():
            yield f"layers.{layer}.{name}.weight", shape


def _modernbert_shapes(config: Config) -> Shapes:
    size, inner = config["hidden_size"], config["intermediate_size"]
    yield "embeddings.tok_embeddings.weight", (config["vocab_size"], size)
    yield "embeddings.norm.weight", (size,)
    yield "final_norm.weight", (size,)
    for layer in range(config["num_hidden_layers"]):
        shapes = {"attn.Wqkv": (3 * size, size), "attn.Wo": (size, size), "mlp_norm": (size,)}
        shapes |= {"mlp.Wi": (2 * inner, size), "mlp.Wo": (size, inner)} | ({"attn_norm": (size,)} if layer else {})
        for name, shape in shapes.items():
            yield f"layers.{layer}.{name}.weight", shape


def _nomic_bert_shapes(config: Config) -> Shapes:
    size, inner = config["n_embd"], config["n_inner"]
    yield "embeddings.word_embeddings.weight", (config["vocab_size"], size)
    yield "embeddings.token_type_embeddings.weight", (config["type_vocab_size"], size)
    norms = ["emb_ln"]
    for layer in range(config["n_layer"]):
        name = f"encoder.layers.{layer}"
        yield f"{name}.attn.Wqkv.weight", (3 * size, size)
        yield f"{name}.attn.out_proj.weight", (size, size)
        yield f"{name}.mlp.fc11.weight", (inner, size)
        yield f"{name}.mlp.fc12.weight", (inner, size)
        yield f"{name}.mlp.fc2.weight", (size, inner)
        norms += [f"{name}.norm1", f"{name}.norm2"]
    for norm in norms:
        yield f"{norm}.weight", (size,)
        yield f"{norm}.bias", (size,)


def _bert_shapes(config: Config) -> Shapes:
    size, inner = config["hidden_size"], config["intermediate_size"]
    yield "embeddings.word_embeddings.weight", (config["vocab_size"], size)
    yield "embeddings.position_embeddings.weight", (config["max_position_embeddings"], size)
    mpnet = config.get("model_type") == "mpnet"
    if mpnet:
        buckets, heads = config["relative_attention_num_buckets"], config["num_attention_heads"]
        yield "encoder.relative_attention_bias.weight", (buckets, heads)
    else:
        yield "embeddings.token_type_embeddings.weight", (config["type_vocab_size"], size)
    names = _MPNET_NAMES if mpnet else _BERT_NAMES
    pairs: dict[str, tuple[int, ...]] = {"embeddings.LayerNorm": (size,)}
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        pairs |= {f"{name}.attention.{part}": (size, size) for part in names}
        pairs |= {f"{name}.attention.{'' if mpnet else 'output.'}LayerNorm": (size,)}
        pairs |= {f"{name}.intermediate.dense": (inner, size), f"{name}.output.dense": (size, inner)}
        pairs |= {f"{name}.output.LayerNorm": (size,)}
    for name, shape in pairs.items():
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]


_BERT_NAMES = ("self.query", "self.key", "self.value", "output.dense")
_MPNET_NAMES = ("attn.q", "attn.k", "attn.v", "attn.o")
# How those that scale by about one end.
SCALES = ("norm.weight", "Norm.weight", "norm1.weight", "norm2.weight", "emb_ln.weight")
_QWEN3_NORMS = ("input", "post_attention")
_GEMMA_NORMS = (*_QWEN3_NORMS, "pre_feedforward", "post_feedforward")
# By architecture; those of BERT for the others.
_TENSORS: dict[str, Callable[[Config], Shapes]] = {
    "PPLXQwen3Model": partial(_decoder_shapes, norms=_QWEN3_NORMS),
    "Qwen3Model": partial(_decoder_shapes, norms=_QWEN3_NORMS),
    "Gemma3TextModel": partial(_decoder_shapes, norms=_GEMMA_NORMS),
    "ModernBertModel": _modernbert_shapes,
    "NomicBertModel": _nomic_bert_shapes,
}
