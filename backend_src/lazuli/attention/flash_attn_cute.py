"""Ragged attention by FlashAttention 4's kernels in CuTe (package `flash-attn-4`), for Hopper GPUs and later.

It takes the layout from the device and needs no plan, so it can be captured in a CUDA graph. A kernel depends on the
head shape alone and is compiled in a few seconds when the backend is made, then kept on the disk.
"""

import os
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata, AttentionShape, why_not_half_on_gpu
from lazuli.attention.finite_output import FiniteOutput

_PACKAGES = ("flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels", "apache-tvm-ffi")
# From one more sequence on, the package launches other kernels.
_MANY_SEQUENCES = 257


class FlashAttnCuteAttention(AttentionBackend):
    """`flash_attn.cute`."""

    name = "flash_attn_cute"
    capturable = True
    plans = True
    loads_slowly = True
    takes_window = True

    @classmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """Needs a new GPU, 16-bit numbers, a head dimension that is a multiple of 8, and the package."""
        reason = why_not_half_on_gpu(device, dtype)
        if reason is not None:
            return reason
        return _why_no_package() or _why_not_gpu(torch.cuda.get_device_capability(device), head_dim)

    @classmethod
    def make(cls, shape: AttentionShape, device: torch.device, dtype: torch.dtype) -> Self:
        """Compile the kernels of a head shape, or take them from the disk, by running each once."""
        # Read when the package is imported, like FLASH_ATTENTION_CUTE_DSL_CACHE_DIR.
        os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the package about its own arguments
            interface: Any = import_module("flash_attn.cute.interface")
            backend = cls(shape, interface._flash_attn_fwd, device, dtype)
            for num_sequences in (1, _MANY_SEQUENCES):
                for window in {None, shape.window}:
                    backend._run_once(num_sequences, window)
        return backend

    def __init__(self, shape: AttentionShape, function: Any, device: torch.device, dtype: torch.dtype) -> None:
        """Wrap the package's function that takes the output as an argument."""
        self._shape = shape
        self._function = function
        self._device = device
        self._dtype = dtype
        self._output = FiniteOutput(shape.num_heads, shape.head_dim, device, dtype)

    def plan(self, metadata: AttentionMetadata) -> None:
        """Make room for the output."""
        self._output.prepare(int(metadata.cu_seqlens_cpu[-1]), metadata.padded_tokens)

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
        output = self._output.rows(len(query))
        # The longest sequence is not told: the Hopper kernels do not use it, but would be compiled once more.
        layout = {"cu_seqlens_q": metadata.cu_seqlens, "cu_seqlens_k": metadata.cu_seqlens}
        assert bias is None, "the kernel has none"
        reach = metadata.hiding_window(window)
        sides = {"window_size_left": reach, "window_size_right": 0 if causal else reach} if reach is not None else {}
        self._function(query, key, value, **layout, causal=causal and not sides, **sides, out=output)
        return output

    def _run_once(self, num_sequences: int, window: int | None = None) -> None:
        """A batch of sequences of one token."""
        shape = self._shape
        heads = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
        packed = torch.zeros(num_sequences, sum(heads), shape.head_dim, device=self._device, dtype=self._dtype)
        cu_seqlens = torch.arange(num_sequences + 1, dtype=torch.int32, device=self._device)
        # A window is used only where it hides something.
        longest = 1 if window is None else window + 2
        metadata = AttentionMetadata(cu_seqlens, cu_seqlens.cpu().numpy(), longest)
        self.plan(metadata)
        query, key, value = packed.split(heads, dim=1)
        self.forward(query, key, value, metadata, causal=shape.causal, window=window)


def _why_no_package() -> str | None:
    for package in _PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            return f"the package {package} is not installed"
    return None


def _why_not_gpu(capability: tuple[int, int], head_dim: int) -> str | None:
    if capability[0] < 9:
        return f"it needs compute capability 9.0 or later, not {capability[0]}.{capability[1]}"
    most = 256 if capability[0] == 9 else 128
    return f"head_dim must be a multiple of 8 up to {most}, not {head_dim}" if head_dim % 8 or head_dim > most else None
