"""Qwen3 (Qwen team, 2025) as an encoder over a ragged batch, causal as published, or bidirectional like pplx-embed.

It has grouped heads, a norm on each query and key head, rotary positions, and normalises before each branch. Takes
packed ids, returns packed hidden states after the last norm. The checkpoint is read under the names that
`transformers` gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.kernels import rms_norm
from lazuli.layers.embedding import TokenEmbedding
from lazuli.layers.linear import Linear
from lazuli.layers.mlp import GateUp
from lazuli.layers.rotary import QkNormRotary, RotaryTable
from lazuli.layers.self_attention import RotaryAttention
from lazuli.layers.stream import Stream
from lazuli.models.base import ModelShape, make_workspace, read_fields, require, use_fused
from lazuli.models.rotary_base import read_theta
from lazuli.weights import WeightReader

if TYPE_CHECKING:
    from lazuli.fused_linear import Workspace

PREFIXES = ("model.",)
IGNORED = ("lm_head.weight", "score.weight")


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
        require(model, {"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False})
        values = read_fields(cls, model, optional=("rope_theta", "causal"))
        return cls(**values, rope_theta=read_theta(model), causal=bool(model.get("is_causal", causal)))

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Inputs and outputs of all layers."""
        queries = self.num_attention_heads * self.head_dim
        heads = queries + 2 * self.num_key_value_heads * self.head_dim
        return self.hidden_size, heads, queries, 2 * self.intermediate_size, self.intermediate_size

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
        self._embedding = TokenEmbedding(weights.take("embed_tokens.weight", config.vocab_size, config.hidden_size))
        device = self._embedding.tokens.device
        rotary = RotaryTable(config.head_dim, config.rope_theta, config.max_position_embeddings, device)
        self._layers = [
            Qwen3Layer(config, weights, attention, rotary, f"layers.{index}")
            for index in range(config.num_hidden_layers)
        ]
        self._norm = weights.take("norm.weight", config.hidden_size)
        weights.finish(IGNORED)
        self._workspace = make_workspace(self._norm, config.layer_sizes, config.head_dim)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `RaggedModel`."""
        if use_fused(self._workspace, len(input_ids)):
            residual = self._fused(input_ids, position_ids, metadata)
            residual = residual if wanted is None else residual[wanted]
        else:
            residual = self._embedding(input_ids, position_ids)
            for layer in self._layers[:-1]:
                layer(residual, position_ids, metadata)
            residual = self._layers[-1](residual, position_ids, metadata, wanted)
        return rms_norm(residual, self._norm, self._eps)

    def _fused(self, input_ids: torch.Tensor, position_ids: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """The layers for few tokens on a GPU: [T, D] before the last norm."""
        assert self._workspace is not None, "the caller has looked"
        stream = self._embedding.stream(input_ids, position_ids)
        for layer in self._layers:
            stream = layer.fused(stream, position_ids, metadata, self._workspace)
        return stream.values


class Qwen3Layer:
    """Attention and perceptron, each with the norm before it and its residual."""

    def __init__(
        self, config: Qwen3Config, weights: WeightReader, attention: AttentionBackend, rotary: RotaryTable, name: str
    ) -> None:
        """Read the weights under `name`."""
        size, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        self._eps = config.rms_norm_eps
        num_heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        attention_norm = weights.take(f"{name}.input_layernorm.weight", size)
        mlp_norm = weights.take(f"{name}.post_attention_layernorm.weight", size)
        # One product instead of three, and one instead of two: they share their input.
        projections = {
            f"{name}.self_attn.{part}_proj": count * head_dim for part, count in zip("qkv", num_heads, strict=True)
        }
        self._qkv = Linear.read(weights, projections, size, bias=False, scale=attention_norm)
        self._norm_rotary = QkNormRotary.read(
            weights, f"{name}.self_attn", num_heads[:2], head_dim, config.rms_norm_eps, rotary
        )
        self._attention = RotaryAttention(attention, self._qkv, self._norm_rotary, num_heads, causal=config.causal)
        self._project = Linear.read(weights, {f"{name}.self_attn.o_proj": size}, num_heads[0] * head_dim, bias=False)
        gate, up = (weights.take(f"{name}.mlp.{part}_proj.weight", inner, size) for part in ("gate", "up"))
        self._gate_up = GateUp(gate, up, mlp_norm)
        self._down = Linear.read(weights, {f"{name}.mlp.down_proj": size}, inner, bias=False)

    def __call__(
        self,
        residual: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Change the residual [T, D] in place and return it, or only the wanted rows, brought up to date."""
        attended = self._attention(rms_norm(residual, None, self._eps), position_ids, metadata)
        if wanted is not None:  # once attention is done, tokens do not mix
            attended, residual = attended[wanted], residual[wanted]
        self._project.add_product_to(residual, attended)
        self._down.add_product_to(residual, self._gate_up(rms_norm(residual, None, self._eps)))
        return residual

    def fused(
        self, stream: Stream, position_ids: torch.Tensor, metadata: AttentionMetadata, workspace: "Workspace"
    ) -> Stream:
        """The same layer for few tokens on a GPU, in five kernels."""
        from lazuli.fused_linear import linear_add, norm_gate_up

        heads = self._norm_rotary.fused(stream, self._qkv, position_ids, workspace)
        stream = linear_add(self._attention.attend(heads, metadata), self._project.weight, stream, workspace)
        inner = norm_gate_up(stream, self._gate_up.linear.weight, self._eps, workspace)
        return linear_add(inner, self._down.weight, stream, workspace)
