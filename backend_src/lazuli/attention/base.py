"""The interface of ragged attention.

Takes packed queries, keys and values and where each sequence lies, returns packed outputs. Knows nothing of layers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch


@dataclass(frozen=True)
class AttentionMetadata:
    """Where the sequences of a batch lie; the same for all layers.

    Attributes:
        cu_seqlens: [B + 1] int32 on the device of the model.
        cu_seqlens_cpu: The same on the host. In a CUDA graph it is what was there at capture: do not use it there.
        max_seqlen: An upper bound for the longest sequence.
    """

    cu_seqlens: torch.Tensor
    cu_seqlens_cpu: np.ndarray
    max_seqlen: int

    @cached_property
    def equal_length_groups(self) -> list[tuple[int, int, int]]:
        """Runs of neighbouring sequences of one length, as (first token, number of sequences, length)."""
        lengths = np.diff(self.cu_seqlens_cpu)
        edges = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
        return [(int(self.cu_seqlens_cpu[start]), end - start, int(lengths[start])) for start, end in pairwise(edges)]


class AttentionBackend(ABC):
    """Softmax attention over each sequence by itself, scaled by 1 / sqrt(head_dim).

    H query heads share K key and value heads in groups of H / K, neighbours first.
    """

    name: str
    # Whether a CUDA graph of it serves batches of another layout: it must not look at `cu_seqlens_cpu`.
    capturable: bool

    @classmethod
    @abstractmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """Why this backend cannot be used here, or None if it can."""

    @abstractmethod
    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
        *,
        causal: bool = False,
    ) -> torch.Tensor:
        """Attend. Does not synchronise.

        Args:
            query: [T, H, head_dim].
            key: [T, K, head_dim].
            value: [T, K, head_dim].
            metadata: Of the same batch.
            causal: Whether a token sees only itself and those before it, instead of its whole sequence.

        Returns:
            [T, H, head_dim]. Rows from cu_seqlens[-1] on hold anything.
        """
