"""One vector for each token: bge-m3's second layer, and the projections of late interaction.

Takes packed hidden states, returns packed vectors of unit length in float32. Knows nothing of requests.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.dense import Dense
from lazuli.errors import ConfigError
from lazuli.layers.linear import Linear
from lazuli.tokenwise.facts import MultiFacts
from lazuli.tokenwise.layer_file import read_layer


class MultiHead:
    """The layers that make a token's vector."""

    def __init__(self, layers: Sequence[Linear | Dense], num_out: int, dtype: torch.dtype) -> None:
        """Wrap layers.

        Args:
            layers: In their order, with weights of `dtype`; without one the hidden states are the vectors.
            num_out: Size of the last one's vectors.
            dtype: What the first one takes.
        """
        self._layers = layers
        self._dtype = dtype
        self.num_out = num_out

    @classmethod
    def read(cls, facts: MultiFacts, hidden_size: int, device: torch.device, dtype: torch.dtype) -> "MultiHead":
        """Read the weights that a checkpoint has.

        Args:
            facts: Where they are.
            hidden_size: Of the model before.
            device: Where they go.
            dtype: Of the model before. The layers of late interaction are computed in float32, being narrow.

        Raises:
            ConfigError: If they are missing or do not fit.
        """
        if facts.file is not None:
            layer = read_layer(facts.file, hidden_size, device, dtype)
            return cls([layer], len(layer.weight), dtype)
        size = hidden_size
        for module in facts.layers:
            if module.num_in != size:
                raise ConfigError(f"{module.path / 'config.json'}: in_features: {module.num_in}, but {size} come in")
            size = module.num_out
        return cls([Dense.read(module, device) for module in facts.layers], size, torch.float32)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, D] to [T, num_out] float32 of unit length."""
        vectors = hidden.to(self._dtype)
        for layer in self._layers:
            vectors = layer(vectors)
        return F.normalize(vectors.float(), dim=1)
