"""NomicBERT (Nussbaum et al., 2024) over a ragged batch: BERT with rotary positions and gates; only norms have biases.

It normalises after each branch. Takes packed ids, returns packed hidden states. Checkpoints come in two spellings, of
`config.json` as well as of the tensors: that of the code that came with the first ones, and that of `transformers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.errors import ConfigError
from lazuli.layers.embedding import TokenEmbedding
from lazuli.layers.linear import Linear
from lazuli.layers.mlp import GATES, GateUp
from lazuli.layers.norm import LayerNorm
from lazuli.layers.rotary import Rotary, RotaryTable
from lazuli.layers.self_attention import RotaryAttention
from lazuli.models.base import ModelShape, read_fields, require, require_one_of
from lazuli.models.rotary_base import read_theta
from lazuli.positions import read_max_positions
from lazuli.weights import WeightReader

PREFIXES = ("nomic_bert.",)
IGNORED = ("cls.*", "pooler.*")
# Fields of the first spelling, and what they mean in the other.
_FIRST_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
# What that code does if they are missing is not what it does here.
_FIRST_DEFAULTS = {
    "activation_function": "gelu_new",
    "qkv_proj_bias": True,
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "rotary_emb_fraction": 0.0,
}
_FIRST_SUPPORTED = {
    "activation_function": "swiglu",
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "prenorm": False,
    "parallel_block": False,
    "use_rms_norm": False,
    "causal": False,
}


@dataclass(frozen=True)
class NomicBertConfig:
    """The part of `config.json` that decides the computation; names as `transformers` has them."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_act: str
    layer_norm_eps: float
    rope_theta: float

    @classmethod
    def from_json(cls, model: Mapping[str, Any]) -> "NomicBertConfig":
        """Read `config.json`.

        Raises:
            ConfigError: If a value is missing or asks for something that is not supported.
        """
        model = _respell(model) if "n_embd" in model else model
        values = read_fields(cls, model, optional=("head_dim", "rope_theta"))
        require_one_of(model, "hidden_act", GATES)
        head_dim = model.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
        return cls(**values, head_dim=head_dim, rope_theta=read_theta(model))

    @property
    def shape(self) -> ModelShape:
        """The sizes that others need."""
        return ModelShape(self.hidden_size, self.head_dim, self.vocab_size, self.max_position_embeddings)


class NomicBertModel:
    """The encoder, without a head."""

    def __init__(self, config: NomicBertConfig, weights: WeightReader, attention: AttentionBackend) -> None:
        """Read all weights.

        Raises:
            ConfigError: If a tensor is missing, left over or of another shape.
        """
        self.shape = config.shape
        size, eps = config.hidden_size, config.layer_norm_eps
        tokens = weights.take("embeddings.word_embeddings.weight", config.vocab_size, size)
        types = weights.take("embeddings.token_type_embeddings.weight", config.type_vocab_size, size)
        # Single texts are all of type 0, so its vector can be added once and for all.
        self._embedding = TokenEmbedding(tokens.add_(types[0]))
        names = _FIRST_TENSORS if f"{_FIRST_TENSORS.embedding_norm}.weight" in weights else _TENSORS
        self._embedding_norm = LayerNorm.read(weights, names.embedding_norm, size, eps)
        table = RotaryTable(config.head_dim, config.rope_theta, config.max_position_embeddings, tokens.device)
        self._layers = [
            NomicBertLayer(config, weights, attention, table, names, index) for index in range(config.num_hidden_layers)
        ]
        weights.finish(IGNORED)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `RaggedModel`."""
        hidden = self._embedding_norm(self._embedding(input_ids, position_ids))
        for layer in self._layers[:-1]:
            hidden = layer(hidden, position_ids, metadata)
        return self._layers[-1](hidden, position_ids, metadata, wanted)


@dataclass(frozen=True)
class _TensorNames:
    """Of one spelling; all but the first are those of a layer."""

    embedding_norm: str
    layers: str
    qkv: tuple[str, ...]
    project: str
    attention_norm: str
    gate: str
    up: str
    down: str
    mlp_norm: str


_FIRST_TENSORS = _TensorNames(
    embedding_norm="emb_ln",
    layers="encoder.layers",
    qkv=("attn.Wqkv",),
    project="attn.out_proj",
    attention_norm="norm1",
    gate="mlp.fc12",
    up="mlp.fc11",
    down="mlp.fc2",
    mlp_norm="norm2",
)
_TENSORS = _TensorNames(
    embedding_norm="embeddings.LayerNorm",
    layers="layers",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    project="self_attn.o_proj",
    attention_norm="post_attention_layernorm",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
    mlp_norm="post_mlp_layernorm",
)


class NomicBertLayer:
    """Attention and perceptron, each with its residual and norm."""

    def __init__(
        self,
        config: NomicBertConfig,
        weights: WeightReader,
        attention: AttentionBackend,
        table: RotaryTable,
        names: _TensorNames,
        index: int,
    ) -> None:
        """Read the weights of layer `index`."""
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        heads, name = config.num_attention_heads, f"{names.layers}.{index}"
        wide = heads * config.head_dim
        parts = {f"{name}.{part}": 3 * wide // len(names.qkv) for part in names.qkv}
        qkv = Linear.read(weights, parts, size, bias=False)
        rotary = Rotary(2 * heads, config.head_dim, table)
        self._attend = RotaryAttention(attention, qkv, rotary, (heads, heads, heads))
        self._project = Linear.read(weights, {f"{name}.{names.project}": size}, wide, bias=False)
        self._attention_norm = LayerNorm.read(weights, f"{name}.{names.attention_norm}", size, eps)
        gate, up = (weights.take(f"{name}.{part}.weight", inner, size) for part in (names.gate, names.up))
        self._gate_up = GateUp(gate, up, activation=config.hidden_act)
        self._down = Linear.read(weights, {f"{name}.{names.down}": size}, inner, bias=False)
        self._mlp_norm = LayerNorm.read(weights, f"{name}.{names.mlp_norm}", size, eps)

    def __call__(
        self,
        hidden: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[T, D] to [T, D], or only to the wanted rows of it: once attention is done, tokens do not mix."""
        attended = self._attend(hidden, position_ids, metadata)
        if wanted is not None:
            attended, hidden = attended[wanted], hidden[wanted]
        hidden = self._attention_norm.after_adding(self._project, attended, hidden)
        return self._mlp_norm.after_adding(self._down, self._gate_up(hidden), hidden)


def _respell(model: Mapping[str, Any]) -> dict[str, Any]:
    """A `config.json` of the first spelling under the names of the other; some files have both."""
    require(_FIRST_DEFAULTS | dict(model), _FIRST_SUPPORTED)
    found = {name: model[first] for first, name in _FIRST_NAMES.items() if model.get(first) is not None}
    for first, name in _FIRST_NAMES.items():
        if name in found and model.get(name, found[name]) != found[name]:
            raise ConfigError(f"{first}: {found[name]!r} contradicts {name}: {model[name]!r}")
    multiple = model.get("pad_vocab_size_multiple", 1)
    found["vocab_size"] = -(-model.get("vocab_size", 0) // multiple) * multiple
    return {**model, **found, "hidden_act": "silu", "max_position_embeddings": read_max_positions(model)}
