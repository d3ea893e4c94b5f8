"""Ragged attention by FlashInfer's kernels for packed sequences: `fa2`, and `fa3` for Hopper GPUs.

Each batch is planned on the host: which block computes which tile. FlashInfer's own wrapper does not fit a CUDA graph
whose batches have padding tokens, and its plan uses one pinned buffer that a copy may still be reading. So its compiled
functions are called directly, and the version is pinned. All buckets share one workspace on the device: it is written
by each plan, on the stream of the kernels, and where things lie in it depends on the bucket alone.

    python -m lazuli.attention.flashinfer_ragged 64 128     # compiles the kernels of these head dimensions, in parallel
"""

import math
import sys
import threading
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Self

import numpy as np
import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata, AttentionShape, why_not_half_on_gpu
from lazuli.attention.finite_output import FiniteOutput
from lazuli.lazy_tensor import PinnedPool

_VERSION = "0.6.11"
# For 32 heads, 1024 sequences and 128 Ki tokens; FlashInfer raises an error if it does not suffice.
_WORKSPACE_BYTES = 4 << 20
_HEAD_DIMS = (64, 128, 256)
# Of the functions' arguments.
_NO_WINDOW = -1  # theirs hides keys to the left alone
_NHD = 0
_PAGE_SIZE = 1
_FOR_GRAPHS = True
_NO_OVERLAP = False
# Tiles of queries are at least that tall, and two blocks run on each multiprocessor.
_LEAST_TILE = 16
_INDICES_A_TILE = 3


class _FlashInferAttention(AttentionBackend):
    """What both kernels share."""

    capturable = True
    plans = True
    loads_slowly = True
    kernel: ClassVar[str]

    @classmethod
    def why_not(cls, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
        """Needs a GPU, 16-bit numbers, one of three head dimensions, and the package."""
        reason = why_not_half_on_gpu(device, dtype)
        if reason is not None:
            return reason
        if head_dim not in _HEAD_DIMS:
            return f"head_dim must be 64, 128 or 256, not {head_dim}"
        return _why_no_package() or cls._why_not_gpu(torch.cuda.get_device_capability(device))

    @classmethod
    def _why_not_gpu(cls, capability: tuple[int, int]) -> str | None:
        return None if capability >= (8, 0) else f"it needs compute capability 8.0 or later, not {_dotted(capability)}"

    @classmethod
    def why_slow_to_make(cls, shape: AttentionShape, dtype: torch.dtype) -> str | None:
        """The kernels must lie in FlashInfer's cache on the disk."""
        if _specification(cls.kernel, dtype, shape.head_dim).is_compiled:
            return None
        return f"its kernels are not compiled; python -m lazuli.attention.flashinfer_ragged {shape.head_dim} does that"

    @classmethod
    def make(cls, shape: AttentionShape, device: torch.device, dtype: torch.dtype) -> Self:
        """Load the kernels, or compile them if they are not in the cache."""
        specification = _specification(cls.kernel, dtype, shape.head_dim)
        # `build_and_load` would ask ninja whether anything has changed, which takes a second.
        compiled = specification.is_compiled
        module = specification.load(specification.get_library_path()) if compiled else specification.build_and_load()
        return cls(shape, module, PinnedPool((_WORKSPACE_BYTES,), torch.uint8), device, dtype)

    def __init__(
        self, shape: AttentionShape, module: Any, pool: PinnedPool, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Allocate the workspace.

        Args:
            shape: Of the model.
            module: The compiled functions `plan` and `ragged_run`.
            pool: Pinned buffers of the size of the workspace.
            device: The GPU.
            dtype: Of queries, keys and values.
        """
        self._shape = shape
        self._module = module
        self._pool = pool
        self._scale = 1 / math.sqrt(shape.head_dim)
        self._workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        # Parts of split keys would be summed up there; splitting is switched off.
        self._no_workspace = torch.empty(16, dtype=torch.uint8, device=device)
        self._output = FiniteOutput(shape.num_heads, shape.head_dim, device, dtype)
        # One batch for each thread: while one captures a graph, another may plan and run a batch.
        self._planned = threading.local()

    def plan(self, metadata: AttentionMetadata) -> None:
        """Schedule the tiles and queue the copy of the schedule."""
        tokens, sequences = metadata.padded_tokens, metadata.num_sequences
        cu_seqlens = np.ascontiguousarray(metadata.cu_seqlens_cpu, dtype=np.int32)
        assert len(cu_seqlens) == sequences + 1, "the layout must be padded on the host as on the device"
        on_host, lengths = torch.from_numpy(cu_seqlens), torch.from_numpy(np.diff(cu_seqlens))
        self._output.prepare(int(cu_seqlens[-1]), tokens)
        staging = self._pool.take()
        self._clear(staging, tokens, sequences)
        workspaces = (self._no_workspace, self._workspace, staging)
        shape = self._shape
        sizes = (tokens, sequences, shape.num_heads, shape.num_kv_heads, _PAGE_SIZE, _FOR_GRAPHS)
        heads = (shape.head_dim, shape.head_dim, shape.causal, _NO_WINDOW)
        try:
            schedule = self._module.plan(*workspaces, on_host, on_host, lengths, *sizes, *heads, *self._plan_options())
        finally:
            self._pool.give_back_after(staging)
        self._planned.batch = metadata, schedule

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
        assert window is None and bias is None, "the kernels have neither"  # noqa: PT018
        planned, schedule = getattr(self._planned, "batch", (None, None))
        assert planned is metadata, "plan() was not called for this batch by this thread"
        output = self._output.rows(len(query))
        buffers = (self._no_workspace, self._workspace, schedule, query, key, value)
        layout = (metadata.cu_seqlens, metadata.cu_seqlens, output, None)
        options = (int(causal), _NHD, _NO_WINDOW, _NO_OVERLAP)
        self._module.ragged_run(*buffers, *layout, *options, *self._run_options())
        return output

    def _clear(self, staging: torch.Tensor, num_tokens: int, num_sequences: int) -> None:
        """Take out what an earlier plan has left in the buffer, where the kernel would read it."""

    def _plan_options(self) -> tuple[Any, ...]:
        return ()

    def _run_options(self) -> tuple[Any, ...]:
        raise NotImplementedError


class FlashInferFa2Attention(_FlashInferAttention):
    """For Ampere GPUs and later.

    Keys are not split among blocks: that would need hundreds of megabytes for long texts, and would make a text's
    result depend on the others of its batch.
    """

    name = "flashinfer_fa2"
    kernel = "fa2"

    def _clear(self, staging: torch.Tensor, num_tokens: int, num_sequences: int) -> None:
        """A graph launches as many blocks as the worst layout needs; zeroed, the rest repeats the first tile."""
        shape = self._shape
        tiles = num_tokens * shape.num_heads // shape.num_kv_heads // _LEAST_TILE + num_sequences
        tiles += 2 * _multiprocessors(self._workspace.device)
        staging[: 4 * _INDICES_A_TILE * (tiles + 4)].zero_()

    def _plan_options(self) -> tuple[Any, ...]:
        return -1, True, 0  # no fixed split of the keys, none at all, and no other kernel beside this one

    def _run_options(self) -> tuple[Any, ...]:
        # Masks, slopes, prefixes and scales; soft cap, scale, rotary scale and base, and the length of an item.
        return *(None,) * 8, 0.0, self._scale, 1.0, 1e-4, 0


class FlashInferFa3Attention(_FlashInferAttention):
    """For Hopper GPUs."""

    name = "flashinfer_fa3"
    kernel = "fa3"

    @classmethod
    def _why_not_gpu(cls, capability: tuple[int, int]) -> str | None:
        return None if capability == (9, 0) else f"it needs compute capability 9.0, not {_dotted(capability)}"

    def _run_options(self) -> tuple[Any, ...]:
        # Prefixes, items and the values' scale; soft cap, scale, the values' scale again, and the length of an item.
        return *(None,) * 4, 0.0, self._scale, 1.0, 0


def build(head_dims: Sequence[int], dtype: torch.dtype = torch.bfloat16) -> None:
    """Compile both kernels of these head dimensions into FlashInfer's cache, all files in parallel."""
    specifications = [_specification(kernel, dtype, head_dim) for kernel in ("fa3", "fa2") for head_dim in head_dims]
    _import_quietly("flashinfer.jit.core").build_jit_specs(specifications)


def _specification(kernel: str, dtype: torch.dtype, head_dim: int) -> Any:
    modules = _import_quietly("flashinfer.jit.attention.modules")
    no_position, no_window, no_soft_cap, no_half_sums = 0, False, False, False
    dtypes = (dtype, dtype, dtype, torch.int32)
    return modules.gen_batch_prefill_module(
        kernel, *dtypes, head_dim, head_dim, no_position, no_window, no_soft_cap, no_half_sums
    )


def _import_quietly(name: str) -> Any:
    """FlashInfer warns of what its own dependencies have deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)


def _why_no_package() -> str | None:
    try:
        found = version("flashinfer-python")
    except PackageNotFoundError:
        return "the package flashinfer-python is not installed"
    return None if found.startswith(_VERSION) else f"flashinfer-python must be {_VERSION}, not {found}"


def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


if __name__ == "__main__":
    build([int(argument) for argument in sys.argv[1:]] or [64, 128])
