"""The interface of ragged attention.

Takes packed queries, keys and values and where each sequence lies, returns packed outputs. Knows nothing of layers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import torch


@dataclass(frozen=True)
class AttentionShape:
    """The attention of a model.

    Attributes:
        num_heads: H, of the queries.
        num_kv_heads: K, of the keys and values; H / K neighbouring query heads share one.
        head_dim: Of each head.
        causal: Whether a token sees only itself and those before it.
        num_layers: How many there are.
        window: How far a token sees in its local layers; None if it has none.
        biased: Whether scores depend on how far apart two tokens are.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool
    num_layers: int
    window: int | None = None
    biased: bool = False


@dataclass(frozen=True)
class AttentionMetadata:
    """Where the sequences of a batch lie; the same for all layers.

    Attributes:
        cu_seqlens: [B + 1] int32 on the device of the model.
        cu_seqlens_cpu: The same on the host. In a CUDA graph it is what was there at capture: do not use it there.
        max_seqlen: An upper bound for the longest sequence.
        num_tokens: Tokens with the padding behind the last sequence; None if there is none.
        seen_tokens: [B] int64 on the host: how many of the first tokens of each sequence are looked at by the others;
            None if all are. Only `ExpandingAttention` knows it.
    """

    cu_seqlens: torch.Tensor
    cu_seqlens_cpu: np.ndarray
    max_seqlen: int
    num_tokens: int | None = None
    seen_tokens: np.ndarray | None = None

    @property
    def num_sequences(self) -> int:
        """B, with the empty ones behind the last."""
        return len(self.cu_seqlens) - 1

    @property
    def padded_tokens(self) -> int:
        """T: rows of the queries."""
        return int(self.cu_seqlens_cpu[-1]) if self.num_tokens is None else self.num_tokens

    @cached_property
    def equal_length_groups(self) -> list[tuple[int, int, int]]:
        """Runs of neighbouring sequences of one length, as (first token, number of sequences, length)."""
        lengths = np.diff(self.cu_seqlens_cpu)
        edges = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
        return [(int(self.cu_seqlens_cpu[start]), end - start, int(lengths[start])) for start, end in pairwise(edges)]

    def hiding_window(self, window: int | None) -> int | None:
        """The window, or None if it is as wide as the longest sequence and hides nothing."""
        return window if window is not None and window < self.max_seqlen - 1 else None


class AttentionBackend(ABC):
    """Softmax attention over each sequence by itself, scaled by 1 / sqrt(head_dim).

    H query heads share K key and value heads in groups of H / K, neighbours first.
    """

    name: str
    # Whether a CUDA graph of it serves batches of another layout: it must not look at `cu_seqlens_cpu`.
    capturable: bool
    plans: bool = False  # whether `plan` does anything
    loads_slowly: bool = False  # a package that takes seconds to import
    grid_by_longest: bool = False  # whether it starts programs for the longest sequence in place of each one
    takes_window: bool = False
    takes_bias: bool = False

    @classmethod
    @abstractmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """Why this backend cannot be used here, or None if it can."""

    @classmethod
    def why_not_shape(cls, shape: AttentionShape) -> str | None:
        """Why this backend cannot compute a model's attention anywhere, or None if it can."""
        if shape.window is not None and not cls.takes_window:
            return "it has no window that is symmetric"
        return "it has no relative bias" if shape.biased and not cls.takes_bias else None

    @classmethod
    def why_slow_to_make(cls, shape: AttentionShape, dtype: torch.dtype) -> str | None:
        """Why `make` would take minutes, or None; such a backend is used only if it is asked for by name."""
        del shape, dtype
        return None

    @classmethod
    def make(cls, shape: AttentionShape, device: torch.device, dtype: torch.dtype) -> Self:
        """Make one for a model. May load or compile kernels, and may run one to have it ready."""
        del shape, device, dtype
        return cls()

    def describe(self) -> str:
        """What decides which kernels run, beside the sizes of a batch."""
        return self.name

    def plan(self, metadata: AttentionMetadata) -> None:
        """Do the host's part for a batch. Does not synchronise.

        To be called for each batch on the stream of its kernels, before any of them is launched or a graph with them
        is captured or replayed, never within a capture, and by the thread that calls `forward`. While one thread
        captures, another may plan and run batches. `forward` gets the same object; a graph serves every batch
        that was planned with the same number of tokens and sequences, and the same `cu_seqlens` tensor.
        """
        del metadata

    @abstractmethod
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
        """Attend. Does not synchronise.

        Args:
            query: [T, H, head_dim].
            key: [T, K, head_dim].
            value: [T, K, head_dim].
            metadata: Of the same batch.
            causal: Whether a token sees only itself and those before it, instead of its whole sequence.
            window: If given, a token sees only those at most so far away; needs `takes_window`.
            bias: [H, 2 R + 1] float32 or None: added to the scaled score of a query and a key that lies d tokens
                further on is `bias[:, R + d]`, where d is cut to -R ... R; needs `takes_bias`.

        Returns:
            [T, H, head_dim]. Rows from cu_seqlens[-1] on hold anything. Valid until the next call.
        """


def why_not_half_on_gpu(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a backend for 16-bit numbers on a GPU cannot be used here, or None if it can."""
    if device.type != "cuda":
        return "it needs a GPU"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in bfloat16 or float16, not in {dtype}"
    return None
