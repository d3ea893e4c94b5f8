"""Chooses among attention backends batch by batch, by measured times.

Takes backends and the entries of the table for the model's head shape. Knows nothing of how they were measured.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.attention.table import Entry, nearest, typical_length

_MOST_REMEMBERED = 4096
_SHOWN_LENGTHS = tuple(2**power for power in range(4, 14))
_SHOWN_BATCHES = (1, 8, 50)


class AutoAttention(AttentionBackend):
    """Hands each batch to the backend that was quickest on the batch most like it.

    The choice depends on what a CUDA graph is captured for: tokens, sequences and the bound of the longest. Layers with
    a window follow it too: where they take less time than the others, they matter less.
    """

    name = "auto"
    capturable = True
    takes_window = True
    takes_bias = True

    def __init__(self, backends: Mapping[str, AttentionBackend], entries: Sequence[Entry], num_layers: int) -> None:
        """Use these backends; at least one of them must have been measured in each entry."""
        self._backends = backends
        self.plans = any(backend.plans for backend in backends.values())
        self.grid_by_longest = all(backend.grid_by_longest for backend in backends.values())
        self._entries = entries
        self._num_layers = num_layers
        # Called for each layer of an eager pass.
        self._choose = lru_cache(_MOST_REMEMBERED)(self._choose_anew)

    @classmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """Whatever the backends can do."""
        return None

    def plan(self, metadata: AttentionMetadata) -> None:
        """Let the chosen backend plan."""
        self._backend(metadata).plan(metadata)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
        *,
        causal: bool = False,
        window: int | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the base class."""
        options: dict[str, Any] = {"causal": causal, "window": window, "bias": bias}
        return self._backend(metadata).forward(query, key, value, metadata, **options)

    def choice(self, num_tokens: int, num_sequences: int, max_seqlen: int) -> str:
        """The name of the backend for such batches."""
        return self._choose(num_tokens, num_sequences, max_seqlen)

    def describe(self) -> str:
        """Its choices for texts of one length, such as `1 text: 16-128 triton, 256-8192 flashinfer_fa3; ...`."""
        parts = []
        for batch in _SHOWN_BATCHES:
            chosen = [(length, self.choice(batch * length, batch, length)) for length in _SHOWN_LENGTHS]
            ranges = [(name, [length for length, _ in run]) for name, run in groupby(chosen, key=lambda pair: pair[1])]
            shown = ", ".join(f"{lengths[0]}-{lengths[-1]} {name}" for name, lengths in ranges)
            parts.append(f"{batch} text{'s' if batch > 1 else ''}: {shown}")
        return "; ".join(parts)

    def _backend(self, metadata: AttentionMetadata) -> AttentionBackend:
        return self._backends[self._choose(metadata.padded_tokens, metadata.num_sequences, metadata.max_seqlen)]

    def _choose_anew(self, num_tokens: int, num_sequences: int, max_seqlen: int) -> str:
        entry = nearest(self._entries, num_tokens, typical_length(num_tokens, num_sequences, max_seqlen))
        chosen = entry.quickest(self._backends, self._num_layers)
        assert chosen is not None, "entries without any of the backends were to be left out"
        return chosen
