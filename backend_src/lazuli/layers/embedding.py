"""Token and position embeddings."""

import torch
import torch.nn.functional as F  # noqa: N812


class TokenEmbedding:
    """The sum of a token's and its position's vector."""

    def __init__(self, tokens: torch.Tensor, positions: torch.Tensor) -> None:
        """Wrap tables of [V, D] and [P, D]."""
        self._tokens = tokens
        self._positions = positions

    def __call__(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Look up [T] int32 ids and positions; returns [T, D]."""
        return F.embedding(input_ids, self._tokens) + F.embedding(position_ids, self._positions)
