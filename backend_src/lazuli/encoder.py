"""From packed ids to vectors: the whole computation that a CUDA graph captures.

Takes a model and a pooling rule. Knows nothing of batches, graphs or the host.
"""

from dataclasses import dataclass

import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.models.base import ModelShape, RaggedModel
from lazuli.pooling import normalize, pool


@dataclass(frozen=True)
class EncoderInputs:
    """The tensors of one forward pass, all on the device of the model.

    Attributes:
        input_ids: [T] int32.
        position_ids: [T] int32.
        attention: Where the B sequences lie.
        normalize: [B], bool or int32; not zero: the vector is scaled to unit length.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention: AttentionMetadata
    normalize: torch.Tensor


class Encoder:
    """A model with its pooling."""

    def __init__(self, model: RaggedModel, pooling: str, *, capturable: bool = False) -> None:
        """Join the two; `capturable` says whether the model's attention may be captured in a CUDA graph."""
        self._model = model
        self._pooling = pooling
        self.capturable = capturable

    @property
    def shape(self) -> ModelShape:
        """The sizes of the model."""
        return self._model.shape

    @torch.inference_mode()
    def encode(self, inputs: EncoderInputs) -> torch.Tensor:
        """Compute the vectors; returns [B, D] float32. Does not synchronise."""
        hidden = self._model.forward(inputs.input_ids, inputs.position_ids, inputs.attention)
        # Compared here, not by the caller: a graph must read the flags of each batch anew.
        return normalize(pool(hidden, inputs.attention.cu_seqlens, self._pooling), inputs.normalize != 0)
