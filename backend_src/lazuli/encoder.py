"""From packed ids to vectors: the whole computation that a CUDA graph captures.

Takes a model, a pooling rule and the layers that follow. Knows nothing of batches, graphs or the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.dense import Dense
from lazuli.heads.load import HeadLayer
from lazuli.models.base import ModelShape, RaggedModel
from lazuli.outputs.finish import finish
from lazuli.outputs.quantize import Quantizer
from lazuli.pooling import pool, pool_and_finish, pooled_tokens

# With fewer tokens, telling the last layer which of them count takes longer than it saves.
_PICK_EARLY_FROM = 1024


@dataclass(frozen=True)
class EncoderInputs:
    """The tensors of one forward pass, all on the device of the model.

    Attributes:
        input_ids: [T] int32.
        position_ids: [T] int32.
        attention: Where the B sequences lie.
        finish: [B] int32; what becomes of each vector: see `lazuli.outputs.finish`.
        cu_spans: [P + 1] int32; where the pieces lie that vectors are made of, if not of whole sequences. Then there
            are P vectors and codes.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention: AttentionMetadata
    finish: torch.Tensor
    cu_spans: torch.Tensor | None = None

    def seeing(self, seen_tokens: np.ndarray | None) -> "EncoderInputs":
        """The same, with some tokens that are not looked at: see `AttentionMetadata.seen_tokens`."""
        if seen_tokens is None:
            return self
        return replace(self, attention=replace(self.attention, seen_tokens=seen_tokens))


class Encoder:
    """A model with its pooling, and the layers after that.

    Attributes:
        quantizer: For vectors in fewer bytes, on the device of the model.
    """

    def __init__(
        self,
        model: RaggedModel,
        pooling: str,
        *,
        capturable: bool = False,
        native: bool = False,
        attention: AttentionBackend | None = None,
        dense: Sequence[Dense] = (),
    ) -> None:
        """Join them.

        Args:
            model: The model.
            pooling: `mean`, `cls` or `last`.
            capturable: Whether the model's attention may be captured in a CUDA graph.
            native: Whether the model runs in C++ with threads of its own: see `lazuli.native`.
            attention: That attention, if it is to plan batches.
            dense: Layers between pooling and normalisation.
        """
        self._model = model
        self._pooling = pooling
        self.capturable = capturable
        self.native = native
        self.attention = attention
        self._dense = dense
        self._head: Sequence[HeadLayer] = ()
        self.quantizer = Quantizer()

    def attach(self, head: Sequence[HeadLayer]) -> None:
        """Let `encode` return what a head makes of the pooled vectors, as it is."""
        self._head = head

    @property
    def dimension(self) -> int:
        """The length of the vectors, or the number of the head's values."""
        layers = self._head or self._dense
        return layers[-1].num_out if layers else self.shape.hidden_size

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
        """Compute [B, dimension] float32, as `lazuli.outputs.finish` leaves it. Does not synchronise a GPU."""
        if not self._dense and not self._head:
            return self._pool(inputs, inputs.finish)
        # Made before the model runs: pooling reads it before the kernel ahead of it has ended.
        as_it_is = torch.zeros_like(inputs.finish)
        vectors = self._pool(inputs, as_it_is)
        for layer in self._head or self._dense:
            vectors = layer(vectors)
        return vectors if self._head else finish(vectors, inputs.finish, self.quantizer)

    @torch.inference_mode()
    def hidden(self, inputs: EncoderInputs) -> torch.Tensor:
        """The hidden states of all tokens, [T, hidden_size]. Does not synchronise."""
        return self._model.forward(inputs.input_ids, inputs.position_ids, inputs.attention)

    @torch.inference_mode()
    def vectors(self, hidden: torch.Tensor, inputs: EncoderInputs) -> torch.Tensor:
        """What `encode` returns, out of hidden states that are there already."""
        layout = inputs.attention
        vectors = pool(hidden, layout.cu_seqlens, self._pooling)
        for layer in self._dense:
            vectors = layer(vectors)
        return finish(vectors, inputs.finish, self.quantizer)

    def _pool(self, inputs: EncoderInputs, codes: torch.Tensor) -> torch.Tensor:
        """One vector of hidden states for each sequence, [B, D] float32, finished as its code says."""
        layout = inputs.attention
        places = layout.cu_seqlens if inputs.cu_spans is None else inputs.cu_spans
        many = len(inputs.input_ids) >= _PICK_EARLY_FROM
        wanted = pooled_tokens(places, self._pooling) if many else None
        hidden = self._model.forward(inputs.input_ids, inputs.position_ids, layout, wanted)
        # The codes are looked at in there, not by the caller: a graph must read those of each batch anew.
        if wanted is not None:
            return finish(hidden, codes, self.quantizer)
        return pool_and_finish(hidden, places, self._pooling, codes, layout.max_seqlen, self.quantizer)
