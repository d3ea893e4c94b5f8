"""Whether a model may compute in 16 bits.

In bfloat16 a CPU may where it has AMX, which makes that about three times quicker (elsewhere it is slower than
float32), and only if this checkpoint's vectors hold: they are compared at start on a fixed probe. float16 overflows
with some models, so it is tried on a probe, too. Knows nothing of Triton.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from lazuli.batch import RaggedBatch
from lazuli.cpu import host_inputs
from lazuli.encoder import Encoder
from lazuli.errors import ConfigError
from lazuli.models.base import ModelShape
from lazuli.outputs.finish import NORMALIZED

_log = logging.getLogger(__name__)

MIN_COSINE = 0.9995
_PROBE_LENGTHS = (4, 16, 33, 128)
# What is known to overflow in float16, on some texts if not on those of a probe.
_NOT_IN_FLOAT16 = ("PPLXQwen3", "Gemma3")


def has_amx_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU has bfloat16 matrix instructions."""
    return cpuinfo.is_file() and " amx_bf16 " in f"{cpuinfo.read_text()} ".replace("\n", " ")


def choose_cpu_dtype(load: Callable[[torch.dtype], Encoder], amx: bool | None = None) -> Encoder:
    """Load a model in bfloat16 if that is quicker and its vectors hold, else in float32.

    Args:
        load: Loads the model in a dtype.
        amx: Whether the CPU has AMX; None looks.

    Returns:
        The loaded encoder.
    """
    exact = load(torch.float32)
    if not (has_amx_bf16() if amx is None else amx):
        _log.info("dtype: float32 (the CPU has no AMX)")
        return exact
    quick = load(torch.bfloat16)
    cosine = worst_cosine(exact, quick)
    chosen, name = (quick, "bfloat16") if cosine >= MIN_COSINE else (exact, "float32")
    _log.info("dtype: %s (worst cosine of bfloat16 on the probe %.6f, needed %.4f)", name, cosine, MIN_COSINE)
    return chosen


def check_float16(architecture: str) -> None:
    """Refuse float16 for a model that is known to overflow in it.

    Raises:
        ConfigError: Naming the architecture.
    """
    if architecture.startswith(_NOT_IN_FLOAT16):
        raise ConfigError(f"dtype: float16: {architecture} overflows in it; use bfloat16 or float32")


def check_finite(embed: Callable[[list[np.ndarray]], np.ndarray], shape: ModelShape) -> None:
    """Try float16 on a probe.

    Args:
        embed: The model: rows of ids to what it computes of them.
        shape: Its sizes.

    Raises:
        ConfigError: If something is NaN or infinite.
    """
    if not np.isfinite(embed(_probe(shape))).all():
        raise ConfigError("dtype: float16: this checkpoint overflows in it; use bfloat16 or float32")


def worst_cosine(reference: Encoder, other: Encoder) -> float:
    """The least cosine between the vectors of two encoders on a fixed probe."""
    rows = _probe(reference.shape)
    inputs = host_inputs(RaggedBatch.pack(rows, [NORMALIZED] * len(rows)))
    products = (reference.encode(inputs) * other.encode(inputs)).sum(dim=1)
    return float(products.min())


def _probe(shape: ModelShape) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = [min(length, shape.max_positions) for length in _PROBE_LENGTHS]
    return [rng.integers(shape.vocab_size, size=length, dtype=np.int32) for length in lengths]
