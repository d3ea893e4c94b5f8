"""The layers of a head: pooled vectors in, its values out, in float32 as all that comes behind pooling.

Takes what `head_config` read, returns layers as `lazuli.dense` has them.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.heads.head_config import AnswerTokens, HeadConfig, LayerConfig
from lazuli.layers.linear import Linear
from lazuli.layers.norm import LayerNorm
from lazuli.models.registry import read_prefixes
from lazuli.weights import WeightReader

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda vectors: vectors,
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class HeadLayer:
    """Product, activation and perhaps a norm."""

    def __init__(self, linear: Linear, activation: str = "none", norm: LayerNorm | None = None) -> None:
        """Join them.

        Args:
            linear: The product.
            activation: One of `head_config.INNER_ACTIVATIONS`.
            norm: What follows.
        """
        self._linear = linear
        self._activation = _ACTIVATIONS[activation]
        self._norm = norm
        self.num_out = len(linear.weight)

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """[B, in] to [B, out], both float32."""
        values = self._activation(self._linear(vectors))
        return values if self._norm is None else self._norm(values)


def load_head(checkpoint: Checkpoint, head: HeadConfig, device: torch.device) -> list[HeadLayer]:
    """Read the layers of a head, in their order.

    Args:
        checkpoint: Whose tensors they are.
        head: What to read.
        device: Where they go.

    Raises:
        ConfigError: If a tensor is missing or of another shape.
    """
    weights = WeightReader(checkpoint.path, device, torch.float32, read_prefixes(checkpoint))
    if head.answers is not None:
        return [_read_answers(checkpoint, head.answers, weights)]
    return [_read_layer(layer, weights) for layer in head.layers]


def _read_layer(layer: LayerConfig, weights: WeightReader) -> HeadLayer:
    linear = Linear.read(weights, {layer.name: layer.num_out}, layer.num_in, bias=layer.bias)
    if layer.norm is None:
        return HeadLayer(linear, layer.activation)
    norm = LayerNorm.read(weights, layer.norm, layer.num_out, layer.eps, bias=layer.norm_bias)
    return HeadLayer(linear, layer.activation, norm)


def _read_answers(checkpoint: Checkpoint, answers: AnswerTokens, weights: WeightReader) -> HeadLayer:
    """The two rows of a language model's head as one: the difference of two logits is one product."""
    name = "lm_head.weight"
    if name not in weights:
        if not checkpoint.model.get("tie_word_embeddings"):
            raise ConfigError(f"{checkpoint.path}: the tensor {name!r} is missing")
        name = "embed_tokens.weight"
    vocab_size, size = checkpoint.model["vocab_size"], checkpoint.model["hidden_size"]
    tokens = [answers.yes] if answers.no is None else [answers.yes, answers.no]
    if not all(0 <= token < vocab_size for token in tokens):
        raise ConfigError(f"{checkpoint.path}: answer tokens {tokens}, but the vocabulary has {vocab_size}")
    rows = weights.take_rows(name, tokens, vocab_size, size)
    return HeadLayer(Linear(rows[:1] - rows[1:] if len(tokens) == 2 else rows))
