"""What the engine needs of a model.

A model takes packed ids and returns packed hidden states. It knows nothing of requests, pooling or graphs.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from lazuli.attention.base import AttentionMetadata


@dataclass(frozen=True)
class ModelShape:
    """The sizes that others need to know.

    Attributes:
        hidden_size: D, the length of vectors.
        head_dim: Of the attention heads.
        vocab_size: Ids are below it.
        max_positions: Most tokens of a sequence.
    """

    hidden_size: int
    head_dim: int
    vocab_size: int
    max_positions: int


class RaggedModel(Protocol):
    """A transformer encoder over packed tokens."""

    shape: ModelShape

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """[T] int32 ids and positions to [T, D] hidden states. Does not synchronise."""
