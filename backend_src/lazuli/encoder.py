"""From packed ids to vectors: the whole computation that a CUDA graph captures.

Takes a model, a pooling rule and the layers that follow. Knows nothing of batches, graphs or the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.dense import Dense
from lazuli.models.base import ModelShape, RaggedModel
from lazuli.pooling import normalize, pool_normalized, pooled_tokens

# With fewer tokens, telling the last layer which of them count takes longer than it saves.
_PICK_EARLY_FROM = 1024


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
    """A model with its pooling, and the layers after that."""

    def __init__(
        self,
        model: RaggedModel,
        pooling: str,
        *,
        capturable: bool = False,
        attention: AttentionBackend | None = None,
        dense: Sequence[Dense] = (),
    ) -> None:
        """Join them.

        Args:
            model: The model.
            pooling: `mean`, `cls` or `last`.
            capturable: Whether the model's attention may be captured in a CUDA graph.
            attention: That attention, if it is to plan batches.
            dense: Layers between pooling and normalisation.
        """
        self._model = model
        self._pooling = pooling
        self.capturable = capturable
        self.attention = attention
        self._dense = dense

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return self._dense[-1].num_out if self._dense else self.shape.hidden_size

    @property
    def shape(self) -> ModelShape:
        """The sizes of the model."""
        return self._model.shape

    @property
    def plans(self) -> bool:
        """Whether `plan` does anything."""
        return self.attention is not None and self.attention.plans

    def plan(self, inputs: EncoderInputs) -> None:
        """Do what attention has to do on the host, before `encode` or the replay of a graph of it."""
        if self.attention is not None:
            self.attention.plan(inputs.attention)

    @torch.inference_mode()
    def encode(self, inputs: EncoderInputs) -> torch.Tensor:
        """Compute the vectors; returns [B, dimension] float32. Does not synchronise."""
        if not self._dense:
            return self._pool(inputs, inputs.normalize)
        # Made before the model runs: pooling reads it before the kernel ahead of it has ended.
        none = torch.zeros_like(inputs.normalize)
        vectors = self._pool(inputs, none)
        for layer in self._dense:
            vectors = layer(vectors)
        return normalize(vectors, inputs.normalize)

    def _pool(self, inputs: EncoderInputs, chosen: torch.Tensor) -> torch.Tensor:
        """One vector of hidden states for each sequence, [B, D] float32; the chosen are scaled to unit length."""
        layout = inputs.attention
        many = len(inputs.input_ids) >= _PICK_EARLY_FROM
        wanted = pooled_tokens(layout.cu_seqlens, self._pooling) if many else None
        hidden = self._model.forward(inputs.input_ids, inputs.position_ids, layout, wanted)
        # The flags are compared in there, not by the caller: a graph must read those of each batch anew.
        if wanted is not None:
            return normalize(hidden, chosen)
        return pool_normalized(hidden, layout.cu_seqlens, self._pooling, chosen, layout.max_seqlen)
