"""The output of kernels that read behind the last sequence.

Kernels that load keys and values in whole tiles by the tensor memory accelerator read up to a tile of padding rows with
the last sequence. Their weights are zero, but zero times a NaN is a NaN: the padding must be finite. It is, if the
padding rows of each layer's output are. So all layers write to one buffer, whose rows behind the last sequence are
zeroed once a batch: a NaN that an earlier batch has left there would spoil this one.
"""

import torch

# No kernel has larger tiles of keys.
_TILE = 256


class FiniteOutput:
    """Gives views of one buffer, which grows."""

    def __init__(self, num_heads: int, head_dim: int, device: torch.device, dtype: torch.dtype) -> None:
        """Allocate nothing yet."""
        self._row = (num_heads, head_dim)
        self._device = device
        self._dtype = dtype
        # Graphs hold addresses in the smaller ones; each is twice as large as the one before.
        self._buffers: list[torch.Tensor] = []

    def prepare(self, num_used: int, num_tokens: int) -> None:
        """Make room for a batch and queue the zeroing of its padding. Not to be called within a capture.

        Args:
            num_used: Tokens of its sequences.
            num_tokens: Those and the padding.
        """
        have = len(self._buffers[-1]) if self._buffers else 0
        if num_tokens > have:
            size = max(num_tokens, 2 * have)
            self._buffers.append(torch.zeros(size, *self._row, device=self._device, dtype=self._dtype))
        if num_used < num_tokens:
            self.rows(num_tokens)[num_used : num_used + _TILE].zero_()

    def rows(self, num_tokens: int) -> torch.Tensor:
        """[num_tokens, H, head_dim], the same memory each time."""
        for buffer in self._buffers:
            if len(buffer) >= num_tokens:
                return buffer[:num_tokens]
        raise AssertionError(f"plan() was not called for {num_tokens} tokens")
