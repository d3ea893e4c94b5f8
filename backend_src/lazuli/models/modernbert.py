"""ModernBERT (Warner et al., 2024) over a ragged batch: BERT with rotary positions, gates and mostly local attention.

It normalises before each branch, and most of its layers see a window of the sequence. Takes packed ids, returns packed
hidden states after the last norm. The checkpoint is read under the names that `transformers` gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.layers.embedding import TokenEmbedding
from lazuli.layers.linear import Linear
from lazuli.layers.mlp import GATES, GateUp
from lazuli.layers.norm import LayerNorm
from lazuli.layers.rotary import Rotary, RotaryTable
from lazuli.layers.self_attention import RotaryAttention
from lazuli.models.base import ModelShape, read_fields, require_one_of
from lazuli.models.layer_kinds import LayerKind, make_tables, read_layer_kinds, widest_window
from lazuli.models.rotary_base import GLOBAL, LOCAL
from lazuli.weights import WeightReader

PREFIXES = ("model.",)
# Heads, which `lazuli.heads` reads where they are wanted.
IGNORED = ("head.*", "decoder.*", "classifier.*")
_BIASES = ("norm_bias", "attention_bias", "mlp_bias")
_OLD_THETAS = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}


@dataclass(frozen=True)
class ModernBertConfig:
    """The part of `config.json` that decides the computation; names as there.

    Attributes:
        layers: Of each layer, its window and the base of its angles.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    hidden_activation: str
    norm_eps: float
    layers: tuple[LayerKind, ...]
    norm_bias: bool
    attention_bias: bool
    mlp_bias: bool

    @classmethod
    def from_json(cls, model: Mapping[str, Any]) -> "ModernBertConfig":
        """Read `config.json`.

        Raises:
            ConfigError: If a value is missing or asks for something that is not supported.
        """
        values = read_fields(cls, model, optional=("layers", *_BIASES))
        values |= {name: bool(model.get(name)) for name in _BIASES}
        require_one_of(model, "hidden_activation", GATES)
        every = model.get("global_attn_every_n_layers", 3)
        window = model.get("local_attention", 128) // 2  # to one side
        layers = read_layer_kinds(model, window, lambda index: index % every == 0, _OLD_THETAS)
        return cls(**values, layers=layers)

    @property
    def window(self) -> int | None:
        """Of the local layers."""
        return widest_window(self.layers)

    @property
    def shape(self) -> ModelShape:
        """The sizes that others need."""
        head_dim = self.hidden_size // self.num_attention_heads
        return ModelShape(self.hidden_size, head_dim, self.vocab_size, self.max_position_embeddings)


class ModernBertModel:
    """The encoder, without a head."""

    def __init__(self, config: ModernBertConfig, weights: WeightReader, attention: AttentionBackend) -> None:
        """Read all weights.

        Raises:
            ConfigError: If a tensor is missing, left over or of another shape.
        """
        self.shape = config.shape
        tokens = weights.take("embeddings.tok_embeddings.weight", config.vocab_size, config.hidden_size)
        self._embedding = TokenEmbedding(tokens)
        self._embedding_norm = _read_norm(config, weights, "embeddings.norm")
        tables = make_tables(config.layers, self.shape.head_dim, config.max_position_embeddings, tokens.device)
        self._layers = [
            ModernBertLayer(config, weights, attention, kind, tables[kind.theta], index)
            for index, kind in enumerate(config.layers)
        ]
        self._norm = _read_norm(config, weights, "final_norm")
        weights.finish(IGNORED)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `RaggedModel`."""
        residual = self._embedding_norm(self._embedding(input_ids, position_ids))
        for layer in self._layers[:-1]:
            residual = layer(residual, position_ids, metadata)
        return self._norm(self._layers[-1](residual, position_ids, metadata, wanted))


class ModernBertLayer:
    """Attention and perceptron, each with the norm before it and its residual."""

    def __init__(
        self,
        config: ModernBertConfig,
        weights: WeightReader,
        attention: AttentionBackend,
        kind: LayerKind,
        table: RotaryTable,
        index: int,
    ) -> None:
        """Read the weights of layer `index`."""
        size, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
        name = f"layers.{index}"
        # The embedding's norm is that of the first layer too.
        self._attention_norm = _read_norm(config, weights, f"{name}.attn_norm") if index else None
        qkv = Linear.read(weights, {f"{name}.attn.Wqkv": 3 * size}, size, bias=config.attention_bias)
        rotary = Rotary(2 * heads, config.shape.head_dim, table)
        self._attend = RotaryAttention(attention, qkv, rotary, (heads, heads, heads), kind.window)
        self._project = Linear.read(weights, {f"{name}.attn.Wo": size}, size, bias=config.attention_bias)
        self._mlp_norm = _read_norm(config, weights, f"{name}.mlp_norm")
        gate, up = weights.take(f"{name}.mlp.Wi.weight", 2 * inner, size).chunk(2)
        bias = weights.take(f"{name}.mlp.Wi.bias", 2 * inner) if config.mlp_bias else None
        self._gate_up = GateUp(gate, up, activation=config.hidden_activation, bias=bias)
        self._down = Linear.read(weights, {f"{name}.mlp.Wo": size}, inner, bias=config.mlp_bias)

    def __call__(
        self,
        residual: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Change the residual [T, D] in place and return it, or only the wanted rows, brought up to date."""
        tokens = residual if self._attention_norm is None else self._attention_norm(residual)
        attended = self._attend(tokens, position_ids, metadata)
        if wanted is not None:  # once attention is done, tokens do not mix
            attended, residual = attended[wanted], residual[wanted]
        self._project.add_to(residual, attended)
        self._down.add_to(residual, self._gate_up(self._mlp_norm(residual)))
        return residual


def _read_norm(config: ModernBertConfig, weights: WeightReader, name: str) -> LayerNorm:
    return LayerNorm.read(weights, name, config.hidden_size, config.norm_eps, bias=config.norm_bias)
