"""Qwen3 (Qwen team, 2025) as an encoder over a ragged batch, causal as published, or bidirectional like pplx-embed.

It has grouped heads, a norm on each query and key head, rotary positions, and normalises before each branch. Takes
packed ids, returns packed hidden states after the last norm. The checkpoint is read under the names that
`transformers` gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.errors import ConfigError
from lazuli.kernels import add_rms_norm, silu_multiply
from lazuli.layers.linear import Linear
from lazuli.layers.rotary import QkNormRotary, RotaryTable
from lazuli.models.base import ModelShape, read_fields
from lazuli.weights import WeightReader

PREFIXES = ("model.",)
IGNORED = ("lm_head.weight",)


@dataclass(frozen=True)
class Qwen3Config:
    """The part of `config.json` that decides the computation; names as there.

    Attributes:
        rope_theta: Base of the rotary angles; in newer files inside `rope_parameters`.
        causal: Whether a token sees only those before it.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    causal: bool

    @classmethod
    def from_json(cls, model: Mapping[str, Any], *, causal: bool) -> "Qwen3Config":
        """Read `config.json`.

        Args:
            model: Its content.
            causal: What the architecture means, unless the file has an `is_causal` of its own.

        Raises:
            ConfigError: If a value is missing or asks for something that is not supported.
        """
        for name, supported in (("hidden_act", "silu"), ("attention_bias", False), ("use_sliding_window", False)):
            if model.get(name, supported) != supported:
                raise ConfigError(f"{name}: {model[name]!r} is not supported, only {supported!r} is")
        values = read_fields(cls, model, optional=("rope_theta", "causal"))
        return cls(**values, rope_theta=_read_theta(model), causal=bool(model.get("is_causal", causal)))

    @property
    def shape(self) -> ModelShape:
        """The sizes that others need."""
        return ModelShape(self.hidden_size, self.head_dim, self.vocab_size, self.max_position_embeddings)


class Qwen3Model:
    """The decoder's trunk, without its head."""

    def __init__(self, config: Qwen3Config, weights: WeightReader, attention: AttentionBackend) -> None:
        """Read all weights.

        Raises:
            ConfigError: If a tensor is missing, left over or of another shape.
        """
        self.shape = config.shape
        self._eps = config.rms_norm_eps
        self._embedding = weights.take("embed_tokens.weight", config.vocab_size, config.hidden_size)
        rotary = RotaryTable(config.head_dim, config.rope_theta, config.max_position_embeddings, self._embedding.device)
        self._layers = [
            Qwen3Layer(config, weights, attention, rotary, f"layers.{index}")
            for index in range(config.num_hidden_layers)
        ]
        self._norm = weights.take("norm.weight", config.hidden_size)
        weights.finish(IGNORED)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """[T] int32 ids and positions to [T, D] hidden states. Does not synchronise."""
        residual = F.embedding(input_ids, self._embedding)
        branch = torch.zeros_like(residual)
        for layer in self._layers:
            branch = layer(branch, residual, position_ids, metadata)
        return add_rms_norm(branch, residual, self._norm, self._eps)


class Qwen3Layer:
    """Attention and perceptron; the residual stream is changed in place."""

    def __init__(
        self, config: Qwen3Config, weights: WeightReader, attention: AttentionBackend, rotary: RotaryTable, name: str
    ) -> None:
        """Read the weights under `name`."""
        size, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        self._attention = attention
        self._causal = config.causal
        self._eps = config.rms_norm_eps
        self._head_dim = head_dim
        self._num_heads = config.num_attention_heads
        self._num_kv_heads = config.num_key_value_heads
        heads = {"q": self._num_heads, "k": self._num_kv_heads, "v": self._num_kv_heads}
        # One product instead of three, and one instead of two: they share their input.
        projections = {f"{name}.self_attn.{part}_proj": count * head_dim for part, count in heads.items()}
        self._qkv = Linear.read(weights, projections, size, bias=False)
        self._norm_rotary = QkNormRotary.read(
            weights, f"{name}.self_attn", (self._num_heads, self._num_kv_heads), head_dim, config.rms_norm_eps, rotary
        )
        self._project = Linear.read(weights, {f"{name}.self_attn.o_proj": size}, self._num_heads * head_dim, bias=False)
        gate_up = {f"{name}.mlp.{part}_proj": inner for part in ("gate", "up")}
        self._gate_up = Linear.read(weights, gate_up, size, bias=False)
        self._down = Linear.read(weights, {f"{name}.mlp.down_proj": size}, inner, bias=False)
        self._attention_norm = weights.take(f"{name}.input_layernorm.weight", size)
        self._mlp_norm = weights.take(f"{name}.post_attention_layernorm.weight", size)

    def __call__(
        self,
        branch: torch.Tensor,
        residual: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """Add the previous branch [T, D] to the residual [T, D] and return the next branch."""
        normed = add_rms_norm(branch, residual, self._attention_norm, self._eps)
        heads = self._qkv(normed).view(len(normed), -1, self._head_dim)  # [T, H + 2 K, head_dim]
        query, key, value = heads.split((self._num_heads, self._num_kv_heads, self._num_kv_heads), dim=1)
        self._norm_rotary(heads[:, : self._num_heads + self._num_kv_heads], position_ids)
        attended = self._attention.forward(query, key, value, metadata, causal=self._causal).flatten(1)
        normed = add_rms_norm(self._project(attended), residual, self._mlp_norm, self._eps)
        return self._down(silu_multiply(self._gate_up(normed)))


def _read_theta(model: Mapping[str, Any]) -> float:
    parameters = model.get("rope_parameters") or model.get("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise ConfigError(f"rope_type: {kind!r} is not supported, only 'default' is")
    theta = parameters.get("rope_theta", model.get("rope_theta"))
    if theta is None:
        raise ConfigError("config.json: rope_theta is missing")
    return float(theta)
