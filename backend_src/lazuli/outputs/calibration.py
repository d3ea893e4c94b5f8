"""The range of each dimension over typical texts, which int8 and uint8 vectors of most models need.

Takes vectors, or the file `lazuli_calibration.json` that `lazuli calibrate` writes beside a checkpoint. There are
ranges for each number of dimensions that vectors are cut to: where they are scaled, what is left grows.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError

FILE_NAME = "lazuli_calibration.json"
_VERSION = 1
_MOST_RANGES = 128  # as many as a finish code can tell apart
_MIN_NORM = 1e-12


@dataclass(frozen=True)
class Range:
    """The range of each of D' dimensions.

    Attributes:
        dimensions: D'.
        minimum: Their least values.
        maximum: Their greatest values.
    """

    dimensions: int
    minimum: list[float]
    maximum: list[float]


@dataclass(frozen=True)
class Calibration:
    """All ranges of a model.

    Attributes:
        dimension: D of the model.
        normalize: Whether the vectors were scaled to unit length.
        texts: How many there were.
        ranges: At least one.
    """

    dimension: int
    normalize: bool
    texts: int
    ranges: tuple[Range, ...]

    @cached_property
    def places(self) -> dict[int, int]:
        """Number of dimensions to the place of its range."""
        return {entry.dimensions: place for place, entry in enumerate(self.ranges)}

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            ConfigError: If it cannot be written.
        """
        try:
            path.write_text(json.dumps({"version": _VERSION, **asdict(self)}) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def calibrate(vectors: np.ndarray, dimensions: Sequence[int], *, normalize: bool) -> Calibration:
    """Find the ranges.

    Args:
        vectors: [N, D] float32 of typical texts, of full length, not scaled.
        dimensions: Further numbers of dimensions that vectors are cut to.
        normalize: Whether they are scaled to unit length then.

    Raises:
        ConfigError: If there are not two texts, or a number of dimensions is impossible.
    """
    size = vectors.shape[1]
    if len(vectors) < 2:
        raise ConfigError(f"texts: {len(vectors)}, but at least 2 are needed, and some thousands are better")
    wrong = [count for count in dimensions if not 0 < count <= size]
    if wrong:
        raise ConfigError(f"dimensions: {wrong[0]}, but the model's vectors have {size}")
    counts = sorted({size, *dimensions}, reverse=True)
    if len(counts) > _MOST_RANGES:
        raise ConfigError(f"dimensions: {len(counts)} numbers, but at most {_MOST_RANGES} are possible")
    return Calibration(
        size, normalize, len(vectors), tuple(_range_of(vectors[:, :count], normalize) for count in counts)
    )


def _range_of(cut: np.ndarray, normalize: bool) -> Range:
    if normalize:
        cut = cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), _MIN_NORM)
    return Range(cut.shape[1], cut.min(axis=0).tolist(), cut.max(axis=0).tolist())


def find_calibration(path: str | None, checkpoint: Checkpoint, dimension: int) -> Calibration | None:
    """Read the ranges of a model.

    Args:
        path: The file; None takes the one beside the checkpoint, if there is one.
        checkpoint: The checkpoint.
        dimension: D of the model.

    Raises:
        ConfigError: If the file is not one, or was made for another model.
    """
    file = checkpoint.path / FILE_NAME if path is None else Path(path)
    if path is None and not file.is_file():
        return None
    try:
        calibration = _parse(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"calibration: {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"calibration: {file} is not what `lazuli calibrate` writes; remove it ({error!r:.200})"
        ) from None
    if calibration.dimension != dimension:
        raise ConfigError(
            f"calibration: {file} is of a model of {calibration.dimension} dimensions, this one has {dimension}"
        )
    return calibration


def _parse(content: dict[str, Any]) -> Calibration:
    version, dimension = content["version"], content["dimension"]
    if version != _VERSION:
        raise ValueError(f"version {version}, not {_VERSION}")
    ranges = tuple(_parse_range(entry, dimension) for entry in content["ranges"])
    if not 0 < len(ranges) <= _MOST_RANGES:
        raise ValueError(f"{len(ranges)} ranges")
    return Calibration(dimension, bool(content["normalize"]), content["texts"], ranges)


def _parse_range(entry: dict[str, Any], dimension: int) -> Range:
    count = entry["dimensions"]
    values = np.array([entry["minimum"], entry["maximum"]], dtype=np.float32)
    if values.shape != (2, count) or not count <= dimension or not np.isfinite(values).all():
        raise ValueError(f"the range of {count} dimensions is damaged")
    return Range(count, entry["minimum"], entry["maximum"])
