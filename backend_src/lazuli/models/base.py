"""What the engine needs of a model.

A model takes packed ids and returns packed hidden states. It knows nothing of requests, pooling or graphs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.errors import ConfigError


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


def read_fields(cls: Any, model: Mapping[str, Any], optional: Collection[str] = ()) -> dict[str, Any]:
    """The values of a dataclass's fields out of a `config.json`.

    Args:
        cls: The dataclass.
        model: The content of the file.
        optional: Fields that are not read from it.

    Raises:
        ConfigError: If one is missing.
    """
    names = [field.name for field in fields(cls) if field.name not in optional]
    missing = [name for name in names if model.get(name) is None]
    if missing:
        raise ConfigError(f"config.json: {missing[0]} is missing")
    return {name: model[name] for name in names}


class RaggedModel(Protocol):
    """A transformer encoder over packed tokens."""

    shape: ModelShape

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """[T] int32 ids and positions to [T, D] hidden states. Does not synchronise."""
