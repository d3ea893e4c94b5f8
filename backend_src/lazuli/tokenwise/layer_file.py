"""A layer that lies in a file of its own, as bge-m3's two do.

Takes the file, returns the layer. Such files are pickles of tensors, and read as nothing but that.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file

from lazuli.errors import ConfigError
from lazuli.layers.linear import Linear


def read_layer(file: Path, num_in: int, device: torch.device, dtype: torch.dtype, num_out: int | None = None) -> Linear:
    """Read `weight` and, if there is one, `bias`.

    Args:
        file: A `.safetensors`, or a `.pt` that holds tensors only.
        num_in: The inputs that it must have.
        device: Where it goes.
        dtype: What it becomes.
        num_out: The outputs that it must have; None for any number.

    Raises:
        ConfigError: If it is damaged, holds something else or is of another shape.
    """
    tensors = _read_tensors(file)
    names = sorted(tensors)
    if names not in (["bias", "weight"], ["weight"]):
        raise ConfigError(f"{file}: it must hold weight and bias, not {', '.join(names[:5]) or 'nothing'}")
    weight = tensors["weight"]
    if weight.ndim != 2 or weight.shape[1] != num_in or num_out not in (None, len(weight)):
        expected = [num_out or "any", num_in]
        raise ConfigError(f"{file}: the tensor 'weight' has shape {list(weight.shape)}, expected {expected}")
    if "bias" in tensors and tensors["bias"].shape != weight.shape[:1]:
        shape, expected = list(tensors["bias"].shape), list(weight.shape[:1])
        raise ConfigError(f"{file}: the tensor 'bias' has shape {shape}, expected {expected}")
    placed = {name: tensor.to(device=device, dtype=dtype).contiguous() for name, tensor in tensors.items()}
    return Linear(placed["weight"], placed.get("bias"))


def _read_tensors(file: Path) -> dict[str, torch.Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch raise nearly anything
        raise ConfigError(f"{file}: it cannot be read as tensors ({_describe(error)})") from None
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise ConfigError(f"{file}: it holds something else than tensors by name")
    return content


def _describe(error: Exception) -> str:
    lines = str(error).splitlines()  # none for an empty file
    return lines[0] if lines else type(error).__name__
