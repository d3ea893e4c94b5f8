"""Which device an engine runs on."""

import torch

from lazuli.errors import ConfigError


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
