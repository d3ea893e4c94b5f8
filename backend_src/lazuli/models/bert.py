"""BERT over a ragged batch (Devlin et al., 2018): bidirectional, absolute positions, normalisation after each branch.

Takes packed ids, returns packed hidden states. The checkpoint is read under the names that `transformers` gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.errors import ConfigError
from lazuli.layers.embedding import TokenEmbedding
from lazuli.layers.linear import Linear
from lazuli.layers.mlp import Mlp
from lazuli.layers.norm import LayerNorm
from lazuli.models.base import ModelShape, read_fields
from lazuli.weights import WeightReader

PREFIXES = ("bert.",)
# A constant table that old checkpoints store, and the head that sentence embeddings do not use.
IGNORED = ("embeddings.position_ids", "pooler.dense.*", "cls.*", "lm_head.*")


@dataclass(frozen=True)
class BertConfig:
    """The part of `config.json` that decides the computation; names as there.

    Attributes:
        position_offset: The first rows of the position table that no token uses; not in the file, but in the family.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_act: str
    layer_norm_eps: float
    position_offset: int = 0

    @classmethod
    def from_json(cls, model: Mapping[str, Any], position_offset: int = 0) -> "BertConfig":
        """Read `config.json`.

        Args:
            model: Its content.
            position_offset: Of the family.

        Raises:
            ConfigError: If a value is missing or asks for something that is not supported.
        """
        positions = model.get("position_embedding_type", "absolute")
        if positions != "absolute":
            raise ConfigError(f"position_embedding_type: {positions!r} is not supported, only 'absolute' is")
        if model.get("is_decoder"):
            raise ConfigError("is_decoder: a BERT decoder is not supported")
        return cls(**read_fields(cls, model, optional=("position_offset",)), position_offset=position_offset)

    @property
    def shape(self) -> ModelShape:
        """The sizes that others need."""
        return ModelShape(
            hidden_size=self.hidden_size,
            head_dim=self.hidden_size // self.num_attention_heads,
            vocab_size=self.vocab_size,
            max_positions=self.max_position_embeddings - self.position_offset,
        )


class BertModel:
    """The encoder, without a pooling head."""

    def __init__(self, config: BertConfig, weights: WeightReader, attention: AttentionBackend) -> None:
        """Read all weights.

        Raises:
            ConfigError: If a tensor is missing, left over or of another shape.
        """
        self.shape = config.shape
        self._embedding = _read_embedding(config, weights)
        self._embedding_norm = LayerNorm.read(
            weights, "embeddings.LayerNorm", config.hidden_size, config.layer_norm_eps
        )
        self._layers = [
            BertLayer(config, weights, attention, f"encoder.layer.{index}") for index in range(config.num_hidden_layers)
        ]
        weights.finish(IGNORED)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """[T] int32 ids and positions to [T, D] hidden states. Does not synchronise."""
        hidden = self._embedding_norm(self._embedding(input_ids, position_ids))
        for layer in self._layers:
            hidden = layer(hidden, metadata)
        return hidden


class BertLayer:
    """Attention and perceptron, each with its residual and norm."""

    def __init__(self, config: BertConfig, weights: WeightReader, attention: AttentionBackend, name: str) -> None:
        """Read the weights under `name`."""
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self._attention = attention
        self._head_dim = config.shape.head_dim
        # One product instead of three: they share their input.
        parts = ("query", "key", "value")
        self._qkv = Linear.read(weights, {f"{name}.attention.self.{part}": size for part in parts}, size)
        self._project = Linear.read(weights, {f"{name}.attention.output.dense": size}, size)
        self._attention_norm = LayerNorm.read(weights, f"{name}.attention.output.LayerNorm", size, eps)
        up = Linear.read(weights, {f"{name}.intermediate.dense": inner}, size)
        down = Linear.read(weights, {f"{name}.output.dense": size}, inner)
        self._mlp = Mlp(up, down, config.hidden_act)
        self._mlp_norm = LayerNorm.read(weights, f"{name}.output.LayerNorm", size, eps)

    def __call__(self, hidden: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """[T, D] to [T, D]."""
        query, key, value = self._qkv(hidden).unflatten(1, (3, -1, self._head_dim)).unbind(1)  # [T, H, head_dim] each
        attended = self._attention.forward(query, key, value, metadata).flatten(1)
        hidden = self._attention_norm.after_adding(self._project(attended), hidden)
        return self._mlp_norm.after_adding(self._mlp(hidden), hidden)


def _read_embedding(config: BertConfig, weights: WeightReader) -> TokenEmbedding:
    size = config.hidden_size
    positions = weights.take("embeddings.position_embeddings.weight", config.max_position_embeddings, size)
    types = weights.take("embeddings.token_type_embeddings.weight", config.type_vocab_size, size)
    tokens = weights.take("embeddings.word_embeddings.weight", config.vocab_size, size)
    # Single texts are all of type 0, so its vector can be added once and for all.
    return TokenEmbedding(tokens, positions[config.position_offset :] + types[0])
