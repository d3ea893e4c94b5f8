"""The engine: a checkpoint on a device, stepped one ragged batch at a time.

Takes batches of token ids, returns lazy vectors. Knows nothing of requests, queues or Triton.
"""

import logging
import threading
import zlib
from collections.abc import Sequence as SequenceOf
from importlib.resources import files

import numpy as np
import torch

from lazuli import __version__
from lazuli.attention.select import select_attention
from lazuli.batch import RaggedBatch
from lazuli.buckets import BucketTable
from lazuli.cache_folder import find_cache_folder, keep_compiled_kernels
from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import EngineConfig
from lazuli.cpu import CpuStepper
from lazuli.cuda import CudaStepper
from lazuli.dense import load_dense
from lazuli.encoder import Encoder
from lazuli.errors import ConfigError
from lazuli.graph import GraphCache, GraphCounters
from lazuli.graph_keeper import GraphKeeper
from lazuli.graph_profile import ProfileFile
from lazuli.lazy_tensor import LazyTensor
from lazuli.models.registry import load_model, read_attention_shape
from lazuli.precision import choose_cpu_dtype
from lazuli.recorder import CapturedGraph
from lazuli.token_input import TokenLimits

_log = logging.getLogger(__name__)

_GPU_TOKEN_BUDGET = 16384
_CPU_TOKEN_BUDGET = 2048  # more does not fit the caches, and was slower
# What decides which kernels run, beside the sizes of a batch.
_TABLES = ("linear_tilings.json", "attention/table.json")
_WARM_UP_LENGTHS = ((1,), (16,), (128,), (8, 16, 16, 64), (16,) * 8)
# Full batches of texts of these lengths: too large for graphs, and each length may have kernels of its own.
_FULL_WARM_UP = (16, 32, 64, 128, 512, 4096)


class Engine:
    """Loads a checkpoint; `step` queues one forward pass, and several threads may call it."""

    def __init__(self, config: EngineConfig, device: torch.device) -> None:
        """Load the model.

        Args:
            config: The parameters.
            device: Where to; `config.device` has been looked at already.

        Raises:
            ConfigError: If the checkpoint or a parameter is unusable.
        """
        self.checkpoint = load_checkpoint(config.checkpoint)
        self.device = device
        if device.type == "cuda":
            keep_compiled_kernels(find_cache_folder(config.cache_dir))
        self.token_budget = config.token_budget or _default_budget(device)
        self._max_batch_sequences = config.max_batch_sequences
        self._encoder = _load_encoder(config, self.checkpoint, device)
        shape = self._encoder.shape
        self.dimension = self._encoder.dimension
        self.limits = TokenLimits(shape.vocab_size, min(shape.max_positions, self.checkpoint.max_positions))
        # Whoever uses the stepper holds the turn. A capture lets it go, so only one may, who took the idle turn before.
        self._idle_turn = threading.Lock()
        self._turn = threading.Lock()
        self._keeper: GraphKeeper | None = None
        self._stepper = self._make_stepper(config)

    def step(self, batch: RaggedBatch) -> LazyTensor:
        """Queue the forward pass of a batch.

        Returns:
            [B, D] float32 in the order of the batch; on a GPU it may still be on its way.
        """
        with self._turn:
            return self._stepper.step(batch)

    def warm_up(self) -> None:
        """Run batches of several sizes, so that the first request finds kernels, graphs and buffers ready."""
        if self._keeper is not None:
            with self._idle_turn, self._turn:
                self._keeper.start()
        full = [(length,) * (self.token_budget // length) for length in _FULL_WARM_UP]
        for lengths in (*_WARM_UP_LENGTHS, *(full if self._keeper is not None else ())):
            chosen = lengths[: self._max_batch_sequences]
            fitting = [min(length, self.limits.max_positions) for length in chosen]
            if fitting:
                self.embed_ids([np.ones(length, dtype=np.int32) for length in fitting])
        if isinstance(self._stepper, CudaStepper):
            self._stepper.graphs.hits.clear()  # nobody asked for these

    def use_idle_time(self, *, quiet: bool) -> bool:
        """Capture a graph that was asked for, if this is the time for it.

        Args:
            quiet: Whether no request came for a while.

        Returns:
            Whether there is more to do.
        """
        if self._keeper is None:
            return False
        with self._idle_turn, self._turn:
            return self._keeper.use_idle_time(quiet=quiet)

    @property
    def graph_counters(self) -> GraphCounters:
        """What happened to batches and graphs so far; all zero on a CPU."""
        return self._stepper.graphs.snapshot() if isinstance(self._stepper, CudaStepper) else GraphCounters()

    def close(self) -> None:
        """Remember which graphs were used, for the next start."""
        if self._keeper is not None:
            with self._idle_turn, self._turn:
                self._keeper.close()

    def embed_ids(self, rows: SequenceOf[np.ndarray], normalize: bool = True) -> np.ndarray:
        """Run one batch and wait for it; for tests and benchmarks of the engine alone.

        Args:
            rows: Ids of each text, [L] int32.
            normalize: Whether vectors are scaled to unit length.

        Returns:
            [N, D] float32, in the order of `rows`.
        """
        batch = RaggedBatch.pack(rows, [normalize] * len(rows))
        vectors = self.step(batch).result()
        self.use_idle_time(quiet=True)
        ordered = np.empty_like(vectors)
        ordered[batch.order] = vectors
        return ordered

    def _make_stepper(self, config: EngineConfig) -> CpuStepper | CudaStepper:
        if self.device.type == "cpu":
            return CpuStepper(self._encoder)
        max_positions = self.limits.max_positions
        attention = self._encoder.attention
        table = BucketTable(
            max_tokens=config.graph_max_tokens or self.token_budget,
            max_sequences=config.max_batch_sequences,
            max_seqlen=max_positions,
            by_longest=attention is not None and attention.grid_by_longest,
        )
        capture = config.graph_capture if self._encoder.capturable else "off"
        graphs: GraphCache[CapturedGraph] = GraphCache(
            table, capture=capture, max_graphs=config.max_graphs, max_bytes=config.graph_memory_mb << 20
        )
        max_tokens = max(self.token_budget, max_positions, table.max_tokens)
        stepper = CudaStepper(self._encoder, self.device, graphs, max_tokens, config.max_batch_sequences, self._turn)
        if capture != "off":
            self._keeper = GraphKeeper(
                stepper,
                ProfileFile(find_cache_folder(config.cache_dir), *self._identity(config)),
                max_tokens=config.graph_max_tokens,
                start_s=config.graph_start_s,
                busy_share=config.graph_busy_ms / 1e3,
            )
        return stepper

    def _identity(self, config: EngineConfig) -> tuple[str, dict[str, object]]:
        """A readable name, and all that a profile of graphs depends on."""
        attention = self._encoder.attention
        return self.checkpoint.path.name, {
            "checkpoint": self.checkpoint.model,
            "pooling": config.pooling or self.checkpoint.pooling,
            "dtype": config.dtype,
            "attention": attention.describe() if attention is not None else None,
            "device": torch.cuda.get_device_name(self.device),
            "token_budget": self.token_budget,
            "max_batch_sequences": config.max_batch_sequences,
            "versions": [__version__, torch.__version__, torch.version.cuda],
            "tables": [zlib.crc32(files("lazuli").joinpath(table).read_bytes()) for table in _TABLES],
        }


def choose_device(name: str | None, gpu_index: int | None) -> torch.device:
    """The device to run on.

    Args:
        name: `cpu`, `cuda`, `cuda:N`, or None for auto.
        gpu_index: The GPU that Triton gave to the instance, or None.

    Raises:
        ConfigError: If a GPU is asked for and there is none, or the name is malformed.
    """
    available = torch.cuda.is_available()
    if name is None:
        name = f"cuda:{gpu_index or 0}" if available else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device: {name!r} is not one of auto, cpu, cuda, cuda:N")
    if device.type == "cpu":
        return device
    index = device.index if device.index is not None else gpu_index or 0
    if not available or index >= torch.cuda.device_count():
        raise ConfigError(f"device: {name!r} is asked for, but torch sees {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", index)


def _default_budget(device: torch.device) -> int:
    return _CPU_TOKEN_BUDGET if device.type == "cpu" else _GPU_TOKEN_BUDGET


def _load_encoder(config: EngineConfig, checkpoint: Checkpoint, device: torch.device) -> Encoder:
    pooling = config.pooling or checkpoint.pooling

    def load(dtype: torch.dtype) -> Encoder:
        attention = select_attention(config.attention, device, dtype, read_attention_shape(checkpoint))
        model = load_model(checkpoint, attention, device, dtype)
        dense = load_dense(checkpoint, model.shape.hidden_size, device)
        return Encoder(model, pooling, capturable=attention.capturable, attention=attention, dense=dense)

    if device.type == "cuda":
        with torch.cuda.device(device):  # libraries ask for the current one
            return load(getattr(torch, config.dtype or "bfloat16"))
    if config.dtype is not None:
        return load(getattr(torch, config.dtype))
    return choose_cpu_dtype(load)
