"""Layers between pooling and normalisation: the `Dense` modules of sentence-transformers.

Takes pooled vectors, returns vectors, in float32: there are few of them, and what is lost here is lost in the result.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.checkpoint import Checkpoint, DenseModule
from lazuli.errors import ConfigError
from lazuli.layers.linear import Linear
from lazuli.weights import WeightReader

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Identity": lambda vectors: vectors,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
}


class Dense:
    """A layer and its activation."""

    def __init__(self, linear: Linear, activation: str) -> None:
        """Join the two; see `lazuli.checkpoint.DenseModule` for the activations."""
        self._linear = linear
        self._activation = _ACTIVATIONS[activation]
        self.num_out = len(linear.weight)

    @classmethod
    def read(cls, module: DenseModule, device: torch.device) -> "Dense":
        """Read the weights in the module's folder.

        Raises:
            ConfigError: If a tensor is missing, left over or of another shape.
        """
        weights = WeightReader(module.path, device, torch.float32)
        linear = Linear.read(weights, {"linear": module.num_out}, module.num_in, bias=module.bias)
        weights.finish()
        return cls(linear, module.activation)

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """[B, in] to [B, out], both float32."""
        return self._activation(self._linear(vectors))


def load_dense(checkpoint: Checkpoint, hidden_size: int, device: torch.device) -> list[Dense]:
    """Read the layers of a checkpoint, in their order; most have none.

    Args:
        checkpoint: Names them.
        hidden_size: Of the model before.
        device: Where they go.

    Raises:
        ConfigError: If their sizes do not fit, or their weights are not what they should be.
    """
    dense_dimension(checkpoint, hidden_size)
    return [Dense.read(module, device) for module in checkpoint.dense]


def dense_dimension(checkpoint: Checkpoint, hidden_size: int) -> int:
    """The length of vectors behind the layers of a checkpoint, without reading their weights.

    Raises:
        ConfigError: If their sizes do not fit.
    """
    size = hidden_size
    for module in checkpoint.dense:
        if module.num_in != size:
            raise ConfigError(f"{module.path / 'config.json'}: in_features: {module.num_in}, but {size} come in")
        size = module.num_out
    return size
