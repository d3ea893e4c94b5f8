"""Which device an engine runs on, and how one is set up."""

import logging
import os
import threading
from importlib import import_module

import torch

from lazuli.errors import ConfigError

_log = logging.getLogger(__name__)
_CORES_TO_SPIN = 8


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
    device = read_device(name)
    if device.type == "cpu":
        return device
    index = device.index if device.index is not None else gpu_index or 0
    if not available or index >= torch.cuda.device_count():
        raise ConfigError(f"device: {name!r} is asked for, but torch sees {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", index)


def read_device(name: str) -> torch.device:
    """The device of a name, whether this machine has it or not.

    Raises:
        ConfigError: If the name is malformed.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device: {name!r} is not one of auto, cpu, cuda, cuda:N")
    return device


def wake_gpu(device: torch.device) -> None:
    """Start what a GPU's first matrix product and first Triton kernel wait for, beside other loading.

    What fails there fails again, and is told, where it is needed.
    """
    threading.Thread(target=_wake_gpu, args=(device,), name="wake-gpu", daemon=True).start()


def _wake_gpu(device: torch.device) -> None:
    try:
        with torch.cuda.device(device):
            square = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
            torch.mm(square, square)
            import_module("triton").runtime.driver.active.get_current_device()
    except Exception:
        _log.debug("the GPU could not be woken early", exc_info=True)


def keep_products_exact() -> None:
    """Let no matrix product on a GPU round in the middle.

    Products that are split along K would add their parts in 16 bits, and only for some numbers of tokens: a text alone
    and in a batch would differ by that.
    """
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def may_spin() -> bool:
    """Whether there are cores to spare for threads that wait: a batch in flight has one."""
    return len(os.sched_getaffinity(0)) >= _CORES_TO_SPIN
