"""The ranges of a calibrated model: what its int8 and uint8 vectors stand for.

Takes the file that `lazuli calibrate` writes, and integers; returns floats.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazuli_client.errors import FileError
from lazuli_client.files import naming

_STEPS = 255
_LEAST = {"int8": -128, "uint8": 0}


@dataclass(frozen=True)
class Ranges:
    """The least and the greatest value of each dimension, for each number of dimensions that was calibrated.

    Attributes:
        bounds: Number of dimensions D to [2, D] float32.
    """

    bounds: Mapping[int, NDArray[np.float32]]

    @classmethod
    def read(cls, path: str | Path) -> "Ranges":
        """Read the file.

        Raises:
            FileError: If it cannot be read, or is another one.
        """
        path = Path(path)
        with naming(path):
            text = path.read_text(encoding="utf-8")
        try:
            bounds = dict(map(_bounds, json.loads(text)["ranges"]))
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(f"{path}: not what `lazuli calibrate` writes ({error!r:.100})") from None
        return cls(bounds)

    def decode(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Undo the encoding, as far as that is possible: each value is the middle of its step.

        Args:
            values: [N, D] int8 or uint8.

        Returns:
            [N, D] float32.

        Raises:
            ValueError: If they are of another type, or D was not calibrated.
        """
        if values.dtype.name not in _LEAST:
            raise ValueError(f"values: must be int8 or uint8, got {values.dtype}")
        if values.shape[1] not in self.bounds:
            raise ValueError(f"values: {values.shape[1]} dimensions, but calibrated were {sorted(self.bounds)}")
        minimum, maximum = self.bounds[values.shape[1]]
        steps = values.astype(np.float32) - _LEAST[values.dtype.name] + np.float32(0.5)
        decoded: NDArray[np.float32] = minimum + steps * (maximum - minimum) / _STEPS
        return decoded


def _bounds(entry: Mapping[str, Any]) -> tuple[int, NDArray[np.float32]]:
    bounds = np.array([entry["minimum"], entry["maximum"]], dtype=np.float32)
    if bounds.shape != (2, entry["dimensions"]):
        raise ValueError(f"the range of {entry['dimensions']} dimensions is damaged")
    return bounds.shape[1], bounds
