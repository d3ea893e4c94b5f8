"""What the engine needs of a model.

A model takes packed ids and returns packed hidden states. It knows nothing of requests, pooling or graphs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.errors import ConfigError

if TYPE_CHECKING:
    from lazuli.fused_linear import Workspace

_FUSED_BLOCK = 128  # sizes must be multiples of it


@dataclass(frozen=True)
class ModelShape:
    """The sizes that others need to know.

    Attributes:
        hidden_size: D, the length of vectors.
        head_dim: Of the attention heads.
        vocab_size: Ids are below it.
        max_positions: Most tokens of a sequence.
        num_segments: How many segments of a sequence it tells apart, see `lazuli.segments`.
    """

    hidden_size: int
    head_dim: int
    vocab_size: int
    max_positions: int
    num_segments: int = 1


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


def require(model: Mapping[str, Any], supported: Mapping[str, Any]) -> None:
    """Refuse a `config.json` that asks for something else.

    Args:
        model: Its content.
        supported: The one value that each field may have, if it is there.

    Raises:
        ConfigError: Naming the field.
    """
    for name, value in supported.items():
        if model.get(name, value) != value:
            raise ConfigError(f"{name}: {model[name]!r} is not supported, only {value!r} is")


def require_one_of(model: Mapping[str, Any], name: str, supported: Collection[str]) -> None:
    """The same of a field that may have several values."""
    if model.get(name) not in supported:
        raise ConfigError(f"{name}: {model.get(name)!r} is not supported, only {', '.join(supported)} are")


class RaggedModel(Protocol):
    """A transformer encoder over packed tokens."""

    shape: ModelShape

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute hidden states. Does not synchronise.

        Args:
            input_ids: [T] int32.
            position_ids: [T] int32.
            metadata: Where the sequences lie.
            wanted: [B] int64, the tokens whose states are wanted; None for all. Saves most of the last layer.

        Returns:
            [T, D], or [B, D].
        """


def make_workspace(weight: torch.Tensor, sizes: Collection[int], head_dim: int = 64) -> "Workspace | None":
    """What the fused layers for few tokens need, or None where they cannot be used.

    Args:
        weight: Any of the model: its device and dtype count.
        sizes: The number of inputs and of outputs of each of its layers.
        head_dim: Of heads that are rotated.
    """
    if not weight.is_cuda or weight.dtype.itemsize != 2 or not fits_fused(sizes, head_dim):
        return None
    from lazuli.fused_linear import Workspace

    return Workspace(weight.device, max(sizes))


def fits_fused(sizes: Collection[int], head_dim: int) -> bool:
    """Whether layers of these sizes divide into blocks as the fused kernels want it."""
    return all(size % _FUSED_BLOCK == 0 for size in sizes) and head_dim.bit_count() == 1


def use_fused(workspace: "Workspace | None", num_tokens: int) -> bool:
    """Whether so few tokens go through the fused layers."""
    return workspace is not None and num_tokens <= workspace.max_tokens
