"""Gemma 3 (Gemma team, 2025) as a bidirectional encoder over a ragged batch, as EmbeddingGemma is published.

It has grouped heads, a norm on each query and key head, norms before and after each branch, and layers that see all of
the sequence or a window of it. Norms scale by one plus their weight. Takes packed ids, returns packed hidden states
after the last norm. The checkpoint is read under the names that `transformers` gives.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.kernels import rms_norm
from lazuli.layers.embedding import TokenEmbedding
from lazuli.layers.linear import Linear
from lazuli.layers.mlp import GATES, GateUp
from lazuli.layers.norm import RmsNorm
from lazuli.layers.rotary import QkNormRotary, RotaryTable
from lazuli.layers.self_attention import RotaryAttention
from lazuli.models.base import ModelShape, read_fields, require, require_one_of
from lazuli.models.layer_kinds import LayerKind, make_tables, read_layer_kinds, widest_window
from lazuli.models.rotary_base import GLOBAL, LOCAL
from lazuli.weights import WeightReader

PREFIXES = ("model.",)
IGNORED = ("lm_head.weight",)
_OLD_THETAS = {GLOBAL: "rope_theta", LOCAL: "rope_local_base_freq"}


@dataclass(frozen=True)
class Gemma3Config:
    """The part of `config.json` that decides the computation; names as there.

    Attributes:
        layers: Of each layer, its window and the base of its angles.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    hidden_activation: str
    query_pre_attn_scalar: float
    rms_norm_eps: float
    layers: tuple[LayerKind, ...]

    @classmethod
    def from_json(cls, model: Mapping[str, Any]) -> "Gemma3Config":
        """Read `config.json`.

        Raises:
            ConfigError: If a value is missing or asks for something that is not supported.
        """
        require({"use_bidirectional_attention": False, **model}, {"use_bidirectional_attention": True})
        require(model, {"attention_bias": False, "attn_logit_softcapping": None})
        values = read_fields(cls, model, optional=("layers",))
        require_one_of(model, "hidden_activation", GATES)
        every = model.get("sliding_window_pattern", model.get("_sliding_window_pattern", 6))
        window = model.get("sliding_window", 4096) // 2  # to one side
        layers = read_layer_kinds(model, window, lambda index: (index + 1) % every == 0, _OLD_THETAS)
        return cls(**values, layers=layers)

    @property
    def window(self) -> int | None:
        """Of the local layers."""
        return widest_window(self.layers)

    @property
    def shape(self) -> ModelShape:
        """The sizes that others need."""
        return ModelShape(self.hidden_size, self.head_dim, self.vocab_size, self.max_position_embeddings)


class Gemma3Model:
    """The trunk, without a head."""

    def __init__(self, config: Gemma3Config, weights: WeightReader, attention: AttentionBackend) -> None:
        """Read all weights.

        Raises:
            ConfigError: If a tensor is missing, left over or of another shape.
        """
        self.shape = config.shape
        tokens = weights.take("embed_tokens.weight", config.vocab_size, config.hidden_size)
        self._embedding = TokenEmbedding(tokens.mul_(math.sqrt(config.hidden_size)))
        tables = make_tables(config.layers, config.head_dim, config.max_position_embeddings, tokens.device)
        self._layers = [
            Gemma3Layer(config, weights, attention, kind, tables[kind.theta], f"layers.{index}")
            for index, kind in enumerate(config.layers)
        ]
        self._norm = RmsNorm(_read_scale(weights, "norm", config.hidden_size), config.rms_norm_eps, tokens.dtype)
        weights.finish(IGNORED)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `RaggedModel`."""
        residual = self._embedding(input_ids, position_ids)
        for layer in self._layers[:-1]:
            residual = layer(residual, position_ids, metadata)
        return self._norm(self._layers[-1](residual, position_ids, metadata, wanted))


class Gemma3Layer:
    """Attention and perceptron, each between two norms and with its residual."""

    def __init__(
        self,
        config: Gemma3Config,
        weights: WeightReader,
        attention: AttentionBackend,
        kind: LayerKind,
        table: RotaryTable,
        name: str,
    ) -> None:
        """Read the weights under `name`."""
        size, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        self._eps = config.rms_norm_eps
        num_heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        before, after_attention, before_mlp, after_mlp = (
            _read_scale(weights, f"{name}.{norm}_layernorm", size)
            for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward")
        )
        parts = {
            f"{name}.self_attn.{part}_proj": count * head_dim for part, count in zip("qkv", num_heads, strict=True)
        }
        qkv = Linear.read(weights, parts, size, bias=False, scale=before)
        rotary = QkNormRotary(_read_head_scales(config, weights, name), config.rms_norm_eps, table)
        self._attend = RotaryAttention(attention, qkv, rotary, num_heads, kind.window)
        self._project = Linear.read(weights, {f"{name}.self_attn.o_proj": size}, num_heads[0] * head_dim, bias=False)
        gate, up = (weights.take(f"{name}.mlp.{part}_proj.weight", inner, size) for part in ("gate", "up"))
        self._gate_up = GateUp(gate, up, before_mlp, activation=config.hidden_activation)
        self._down = Linear.read(weights, {f"{name}.mlp.down_proj": size}, inner, bias=False)
        dtype = self._down.weight.dtype
        self._after_attention = RmsNorm(after_attention, config.rms_norm_eps, dtype)
        self._after_mlp = RmsNorm(after_mlp, config.rms_norm_eps, dtype)

    def __call__(
        self,
        residual: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Change the residual [T, D] in place and return it, or only the wanted rows, brought up to date."""
        attended = self._attend(rms_norm(residual, None, self._eps), position_ids, metadata)
        if wanted is not None:  # once attention is done, tokens do not mix
            attended, residual = attended[wanted], residual[wanted]
        residual.add_(self._after_attention(self._project(attended)))
        inner = self._gate_up(rms_norm(residual, None, self._eps))
        return residual.add_(self._after_mlp(self._down(inner)))


def _read_scale(weights: WeightReader, name: str, size: int) -> torch.Tensor:
    """What a norm scales by, [size]; float32, as one plus a small weight loses much of it in bfloat16."""
    return weights.take(f"{name}.weight", size).float() + 1


def _read_head_scales(config: Gemma3Config, weights: WeightReader, name: str) -> torch.Tensor:
    """Those of all query and key heads, [H + K, head_dim]."""
    counts = (config.num_attention_heads, config.num_key_value_heads)
    query, key = (_read_scale(weights, f"{name}.self_attn.{part}_norm", config.head_dim) for part in "qk")
    # Attention divides by the root of the heads' size, whatever it should divide by.
    query *= math.sqrt(config.head_dim / config.query_pre_attn_scalar)
    return torch.cat([scale.expand(count, -1) for scale, count in zip((query, key), counts, strict=True)])
