"""Token and position embeddings."""

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli.layers.stream import Stream
from lazuli.segments import SEGMENT_BIT


class TokenEmbedding:
    """A token's vector, plus that of its position if there is a table of them.

    If segments are told apart, each has a table of positions of its own, and ids carry the segment: see
    `lazuli.segments`.

    Attributes:
        tokens: [V, D].
        positions: [num_segments P, D], or None.
        segment_length: P, or 0 where segments are not told apart.
    """

    def __init__(self, tokens: torch.Tensor, positions: torch.Tensor | None = None, num_segments: int = 1) -> None:
        """Wrap tables.

        Args:
            tokens: [V, D].
            positions: [num_segments P, D], the first segment first.
            num_segments: 1 or 2.
        """
        self.tokens = tokens
        self.positions = positions
        self.segment_length = 0 if positions is None or num_segments == 1 else len(positions) // num_segments

    def __call__(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Look up [T] int32 ids and positions; returns [T, D]."""
        if input_ids.is_cuda:
            return self.stream(input_ids, position_ids).values
        if self.segment_length:
            position_ids = position_ids + (input_ids >> SEGMENT_BIT) * self.segment_length
            input_ids = input_ids & ((1 << SEGMENT_BIT) - 1)
        vectors = F.embedding(input_ids, self.tokens)
        return vectors if self.positions is None else vectors + F.embedding(position_ids, self.positions)

    def stream(self, input_ids: torch.Tensor, position_ids: torch.Tensor, scale: torch.Tensor | None = None) -> Stream:
        """The same on a GPU for the fused layers, multiplied by the scale [D] of a layer norm that follows."""
        from lazuli.triton_kernels import rows

        tables = (self.tokens, self.positions, scale)
        return Stream(*rows.embed(input_ids, position_ids, *tables, segment_length=self.segment_length))
