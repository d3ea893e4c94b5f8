"""The weights of a checkpoint, read once and accounted for.

Takes a checkpoint folder, returns tensors by name, converted and placed. Knows nothing of architectures: a model takes
what it needs, and `finish` refuses what nobody took.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from lazuli.errors import ConfigError
from lazuli.weight_files import find_weight_files


class WeightReader:
    """Hands out each tensor of a checkpoint at most once."""

    def __init__(self, path: Path, device: torch.device, dtype: torch.dtype, prefixes: Iterable[str] = ()) -> None:
        """Open the safetensors files of a folder, single or sharded.

        Args:
            path: The checkpoint folder.
            device: Where tensors go.
            dtype: What floating-point tensors become.
            prefixes: Prefixes such as `bert.` that some checkpoints put before every name; left out of the names here.

        Raises:
            ConfigError: If a safetensors file is missing or damaged, or two tensors have one name.
        """
        self._path = path
        self._device = device
        self._dtype = dtype
        self._files: dict[str, tuple[Path, str]] = {}
        prefixes = tuple(prefixes)
        for file in find_weight_files(path):
            for stored_name in _stored_names(file):
                name = _strip(stored_name, prefixes)
                if name in self._files:
                    raise ConfigError(f"{path}: the tensor {name!r} is stored twice")
                self._files[name] = (file, stored_name)

    def __contains__(self, name: str) -> bool:
        """Whether there is such a tensor that nobody has taken, without prefix."""
        return name in self._files

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """Read one tensor.

        Args:
            name: Its name, without prefix.
            shape: The shape that it must have.

        Returns:
            A contiguous tensor on the reader's device, in its dtype.

        Raises:
            ConfigError: If it is missing, was taken before, or has another shape.
        """
        if name not in self._files:
            raise ConfigError(f"{self._path}: the tensor {name!r} is missing")
        file, stored_name = self._files.pop(name)
        with safe_open(file, framework="pt") as tensors:
            tensor = tensors.get_tensor(stored_name)
        self._check_shape(name, tensor.shape, shape)
        return self._place(tensor)

    def take_rows(self, name: str, rows: list[int], *shape: int) -> torch.Tensor:
        """Read some rows of a matrix, without the others, which may be many.

        Args:
            name: Its name, without prefix.
            rows: Their numbers.
            shape: The shape that the whole matrix must have.

        Raises:
            ConfigError: As `take` does.
        """
        if name not in self._files:
            raise ConfigError(f"{self._path}: the tensor {name!r} is missing")
        file, stored_name = self._files.pop(name)
        with safe_open(file, framework="pt") as tensors:
            matrix = tensors.get_slice(stored_name)
            self._check_shape(name, matrix.get_shape(), shape)
            return self._place(torch.cat([matrix[row : row + 1] for row in rows]))

    def _check_shape(self, name: str, found: Sequence[int], expected: Sequence[int]) -> None:
        if tuple(found) != tuple(expected):
            raise ConfigError(f"{self._path}: the tensor {name!r} has shape {list(found)}, expected {list(expected)}")

    def _place(self, tensor: torch.Tensor) -> torch.Tensor:
        placed: torch.Tensor = tensor.to(device=self._device, dtype=self._dtype, copy=True).contiguous()
        return placed

    def finish(self, ignored: Iterable[str] = ()) -> None:
        """Check that nothing is left over.

        Args:
            ignored: Patterns of names that the model is known not to need.

        Raises:
            ConfigError: If tensors are left that no pattern covers: the architecture is not what it claims to be.
        """
        patterns = tuple(ignored)
        left = sorted(name for name in self._files if not any(fnmatchcase(name, pattern) for pattern in patterns))
        if left:
            shown = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
            raise ConfigError(f"{self._path}: {len(left)} tensors are left over: {shown}")


def _stored_names(file: Path) -> list[str]:
    try:
        with safe_open(file, framework="pt") as tensors:
            return list(tensors.keys())
    except (SafetensorError, OSError) as error:
        size = file.stat().st_size
        raise ConfigError(f"{file}: {size} bytes that are no whole safetensors file ({error})") from None


def _strip(name: str, prefixes: tuple[str, ...]) -> str:
    return next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
