"""Token and position embeddings."""

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.layers.stream import Stream


class TokenEmbedding:
    """A token's vector, plus that of its position if there is a table of them."""

    def __init__(self, tokens: torch.Tensor, positions: torch.Tensor | None = None) -> None:
        """Wrap tables of [V, D] and [P, D]."""
        self.tokens = tokens
        self._positions = positions

    def __call__(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Look up [T] int32 ids and positions; returns [T, D]."""
        if input_ids.is_cuda:
            return self.stream(input_ids, position_ids).values
        vectors = F.embedding(input_ids, self.tokens)
        return vectors if self._positions is None else vectors + F.embedding(position_ids, self._positions)

    def stream(self, input_ids: torch.Tensor, position_ids: torch.Tensor, scale: torch.Tensor | None = None) -> Stream:
        """The same on a GPU for the fused layers, multiplied by the scale [D] of a layer norm that follows."""
        from lazuli.triton_kernels import rows

        return Stream(*rows.embed(input_ids, position_ids, self.tokens, self._positions, scale))
