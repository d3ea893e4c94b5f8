"""The engine: a checkpoint on a device, stepped one ragged batch at a time.

Takes batches of token ids, returns lazy vectors. Knows nothing of requests, queues or Triton.
"""

import logging
from collections.abc import Sequence as SequenceOf

import numpy as np
import torch

from lazuli.attention.select import select_attention
from lazuli.batch import RaggedBatch
from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import EngineConfig
from lazuli.cpu import CpuStepper
from lazuli.cuda import CudaStepper
from lazuli.encoder import Encoder
from lazuli.errors import ConfigError
from lazuli.graph import BucketRule
from lazuli.lazy_tensor import LazyTensor
from lazuli.models.registry import load_model, read_shape
from lazuli.precision import choose_cpu_dtype
from lazuli.token_input import TokenLimits

_log = logging.getLogger(__name__)

_GPU_TOKEN_BUDGET = 16384
_CPU_TOKEN_BUDGET = 2048  # more does not fit the caches, and was slower
_WARM_UP_LENGTHS = ((1,), (16,), (128,), (8, 16, 16, 64), (16,) * 8)


class Engine:
    """Loads a checkpoint; `step` queues one forward pass and is for one thread."""

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
        self.token_budget = config.token_budget or _default_budget(device)
        self._max_batch_sequences = config.max_batch_sequences
        self._encoder = _load_encoder(config, self.checkpoint, device)
        self._stepper = self._make_stepper(config)
        shape = self._encoder.shape
        self.dimension = shape.hidden_size
        self.limits = TokenLimits(shape.vocab_size, min(shape.max_positions, self.checkpoint.max_positions))

    def step(self, batch: RaggedBatch) -> LazyTensor:
        """Queue the forward pass of a batch.

        Returns:
            [B, D] float32 in the order of the batch; on a GPU it may still be on its way.
        """
        return self._stepper.step(batch)

    def warm_up(self) -> None:
        """Run batches of several sizes, so that the first request finds kernels, graphs and buffers ready."""
        repeats = 1 if self.device.type == "cpu" else 3  # on a GPU: eager, capture, replay
        for lengths in _WARM_UP_LENGTHS:
            chosen = lengths[: self._max_batch_sequences]
            fitting = [min(length, self.limits.max_positions) for length in chosen]
            for _ in range(repeats):
                self.embed_ids([np.ones(length, dtype=np.int32) for length in fitting])

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
        ordered = np.empty_like(vectors)
        ordered[batch.order] = vectors
        return ordered

    def _make_stepper(self, config: EngineConfig) -> CpuStepper | CudaStepper:
        if self.device.type == "cpu":
            return CpuStepper(self._encoder)
        max_positions = self._encoder.shape.max_positions
        rule = BucketRule(
            token_step=config.graph_token_step,
            max_tokens=config.graph_max_tokens,
            max_sequences=config.max_batch_sequences,
            max_seqlen=max_positions,
        )
        # Room for a bucket's padding: it is less than the largest step, which divides 4 * graph_token_step.
        max_tokens = max(self.token_budget, max_positions, config.graph_max_tokens) + 4 * config.graph_token_step
        return CudaStepper(self._encoder, self.device, rule, config.max_graphs, max_tokens, config.max_batch_sequences)


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
        attention = select_attention(config.attention, device, dtype, read_shape(checkpoint).head_dim)
        model = load_model(checkpoint, attention, device, dtype)
        return Encoder(model, pooling, capturable=attention.capturable)

    if config.dtype is not None:
        return load(getattr(torch, config.dtype))
    if device.type == "cuda":
        return load(torch.bfloat16)
    return choose_cpu_dtype(load)
