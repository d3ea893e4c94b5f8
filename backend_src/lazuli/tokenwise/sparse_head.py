"""Weights of ids: of those in the text (bge-m3), or of any that a masked language model would expect (SPLADE).

Takes packed hidden states, returns weights in float32, none of them negative. Knows nothing of requests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.layers.linear import Linear
from lazuli.models.registry import read_prefixes
from lazuli.to_device import to_device
from lazuli.tokenwise.facts import SparseFacts
from lazuli.tokenwise.layer_file import read_layer
from lazuli.weights import WeightReader

# Logits that are there at a time: tokens times ids.
_MOST_LOGITS = 1 << 25
_ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class TokenWeights:
    """bge-m3: relu of a layer, for each token."""

    def __init__(self, layer: Linear, unweighted_ids: frozenset[int], vocab_size: int) -> None:
        """Wrap a layer of one output; ids of the second get no weight."""
        self._layer = layer
        self._dtype = layer.weight.dtype
        self._kept = torch.ones(vocab_size, device=layer.weight.device)
        self._kept[[number for number in unweighted_ids if number < vocab_size]] = 0

    @classmethod
    def read(cls, facts: SparseFacts, hidden_size: int, vocab_size: int, device: torch.device) -> "TokenWeights":
        """Read the layer, in float32.

        Raises:
            ConfigError: If it is not what it should be.
        """
        assert facts.file is not None, "the caller has looked"
        return cls(read_layer(facts.file, hidden_size, device, torch.float32, 1), facts.unweighted_ids, vocab_size)

    def __call__(self, hidden: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        """[T, D] hidden states and [T] ids to [T] float32."""
        return self._layer(hidden.to(self._dtype)).squeeze(1).relu() * self._kept[input_ids]


@dataclass(frozen=True)
class _MlmNames:
    """The tensors of a masked language model's head."""

    dense: str
    norm: str
    bias: str
    decoder: str


_BERT = _MlmNames(
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    bias="cls.predictions.bias",
    decoder="cls.predictions.decoder",
)
_ROBERTA = _MlmNames(dense="lm_head.dense", norm="lm_head.layer_norm", bias="lm_head.bias", decoder="lm_head.decoder")
_MODERNBERT = _MlmNames(dense="head.dense", norm="head.norm", bias="decoder.bias", decoder="decoder")
_NAMES = {
    "BertForMaskedLM": _BERT,
    "XLMRobertaForMaskedLM": _ROBERTA,
    "RobertaForMaskedLM": _ROBERTA,
    "MPNetForMaskedLM": _ROBERTA,
    "ModernBertForMaskedLM": _MODERNBERT,
}
# Of the trunk; most heads share it.
_TABLES = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")


class SpladeHead:
    """The largest log(1 + relu(logit)) that any token of a text has for an id."""

    def __init__(
        self,
        transform: Callable[[torch.Tensor], torch.Tensor],
        table: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        log_twice: bool = False,
    ) -> None:
        """Join the parts.

        Args:
            transform: [T, D] hidden states to [T, D].
            table: [V, D], a row an id.
            bias: [V], or None.
            log_twice: See `SparseFacts`.
        """
        self._transform = transform
        self._table = table
        self._bias = bias
        self._log_twice = log_twice

    @classmethod
    def read(cls, facts: SparseFacts, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> "SpladeHead":
        """Read the head of a checkpoint's masked language model.

        Raises:
            ConfigError: If there is none, or its family is not supported.
        """
        name = checkpoint.architecture
        if name not in _NAMES:
            supported = ", ".join(_NAMES)
            raise ConfigError(f"{checkpoint.path}: {name} has no head for SPLADE that is known; supported: {supported}")
        weights = WeightReader(checkpoint.path, device, dtype, read_prefixes(checkpoint))
        names, model = _NAMES[name], checkpoint.model
        size, vocab_size = model["hidden_size"], model["vocab_size"]
        tied = next((table for table in (f"{names.decoder}.weight", *_TABLES) if table in weights), _TABLES[0])
        bias = next((place for place in (f"{names.decoder}.bias", names.bias) if place in weights), None)
        return cls(
            _read_transform(names, weights, model),
            weights.take(tied, vocab_size, size),
            weights.take(bias, vocab_size) if bias is not None else None,
            log_twice=facts.log_twice,
        )

    def __call__(self, hidden: torch.Tensor, cu_seqlens: np.ndarray) -> torch.Tensor:
        """Weigh every id for every sequence.

        Logits are there for some tokens at a time: those of a whole batch would be gigabytes.

        Args:
            hidden: [T, D].
            cu_seqlens: [B + 1] int32, on the host.

        Returns:
            [B, V] float32.
        """
        num_sequences, vocab_size = len(cu_seqlens) - 1, len(self._table)
        most = max(1, _MOST_LOGITS // vocab_size)
        best = torch.zeros((num_sequences, vocab_size), dtype=torch.float32, device=hidden.device)
        for first, last in _pieces(cu_seqlens, most):
            # Sequences that have tokens among them.
            begin = int(np.searchsorted(cu_seqlens, first, side="right")) - 1
            end = int(np.searchsorted(cu_seqlens, last, side="left"))
            offsets = np.clip(cu_seqlens[begin : end + 1], first, last).astype(np.int64) - first
            logits = F.linear(self._transform(hidden[first:last].to(self._table.dtype)), self._table, self._bias)
            # From 0 on, which is the relu. Not `unsafe`, it would look at the offsets, and wait for the device.
            places = to_device(offsets, hidden.device)
            largest = torch.segment_reduce(logits.float(), "max", offsets=places, unsafe=True, initial=0)
            torch.maximum(best[begin:end], largest, out=best[begin:end])
        weights = best.log1p_()
        return weights.log1p_() if self._log_twice else weights


def _read_transform(
    names: _MlmNames, weights: WeightReader, model: Mapping[str, Any]
) -> Callable[[torch.Tensor], torch.Tensor]:
    size = model["hidden_size"]
    activation = model.get("classifier_activation") or model.get("hidden_act") or "gelu"
    if activation not in _ACTIVATIONS:
        raise ConfigError(f"hidden_act: {activation!r} is not one of {', '.join(_ACTIVATIONS)}")
    bias = f"{names.dense}.bias" in weights
    dense = Linear.read(weights, {names.dense: size}, size, bias=bias)
    scale = weights.take(f"{names.norm}.weight", size)
    shift = weights.take(f"{names.norm}.bias", size) if f"{names.norm}.bias" in weights else None
    eps = model.get("layer_norm_eps") or model.get("norm_eps") or 1e-5
    return lambda hidden: F.layer_norm(_ACTIVATIONS[activation](dense(hidden)), (size,), scale, shift, eps)


def _pieces(cu_seqlens: np.ndarray, most: int) -> list[tuple[int, int]]:
    """First and last token, exclusive, of pieces of at most so many tokens."""
    total = int(cu_seqlens[-1])
    return [(first, min(first + most, total)) for first in range(0, total, most)]
