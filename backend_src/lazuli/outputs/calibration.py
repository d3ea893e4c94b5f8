"""The range of each dimension over typical texts, which int8 and uint8 vectors of most models need.

Takes vectors, or the file `lazuli_calibration.json` that `lazuli calibrate` writes beside a checkpoint. There are
ranges for each number of dimensions that vectors are cut to: where they are scaled, what is left grows.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.outputs.fingerprint import Fingerprint, fingerprint

_log = logging.getLogger(__name__)
FILE_NAME = "lazuli_calibration.json"
_VERSION = 1
_MOST_RANGES = 128  # as many as a finish code can tell apart
_MIN_NORM = 1e-12
# Values that differ by less of their size are equal but for rounding.
_LEAST_SPREAD = 1e-4


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

    @property
    def num_flat(self) -> int:
        """How many dimensions have the same value, but for rounding, in all texts: their codes say nothing."""
        minimum, maximum = np.array(self.minimum), np.array(self.maximum)
        size = np.maximum(np.abs(minimum), np.abs(maximum))
        return int(np.count_nonzero(maximum - minimum <= _LEAST_SPREAD * size))


@dataclass(frozen=True)
class Calibration:
    """All ranges of a model.

    Attributes:
        dimension: D of the model.
        normalize: Whether the vectors were scaled to unit length.
        texts: How many there were.
        ranges: At least one.
        fingerprint: Of the checkpoint; empty in a file that was not written by `lazuli calibrate`.
    """

    dimension: int
    normalize: bool
    texts: int
    ranges: tuple[Range, ...]
    fingerprint: Fingerprint = field(default_factory=dict)

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


def calibrate(
    vectors: np.ndarray, dimensions: Sequence[int], *, normalize: bool, fingerprint: Fingerprint | None = None
) -> Calibration:
    """Find the ranges.

    Args:
        vectors: [N, D] float32 of typical texts, of full length, not scaled.
        dimensions: Further numbers of dimensions that vectors are cut to.
        normalize: Whether they are scaled to unit length then.
        fingerprint: Of the checkpoint.

    Raises:
        ConfigError: If there are not two texts, or all are alike, or a number of dimensions is impossible.
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
    ranges = tuple(_range_of(vectors[:, :count], normalize) for count in counts)
    for found in ranges:
        if found.num_flat == found.dimensions:
            raise ConfigError(
                f"texts: the vectors of all {len(vectors)} have the same value in each of {found.dimensions} "
                "dimensions, so there are no ranges; give texts that differ"
            )
    return Calibration(size, normalize, len(vectors), ranges, fingerprint or {})


def _range_of(cut: np.ndarray, normalize: bool) -> Range:
    if normalize:
        cut = cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), _MIN_NORM)
    return Range(cut.shape[1], cut.min(axis=0).tolist(), cut.max(axis=0).tolist())


def find_calibration(
    path: str | None, checkpoint: Checkpoint, dimension: int, pooling: str | None = None
) -> Calibration | None:
    """Read the ranges of a model.

    Args:
        path: The file; None takes the one beside the checkpoint, if there is one.
        checkpoint: The checkpoint.
        dimension: D of the model.
        pooling: As the engine has it; None where that is not known, and then any will do.

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
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(
            f"calibration: {file} is not what `lazuli calibrate` writes; remove it ({why:.200})"
        ) from None
    if calibration.dimension != dimension:
        raise ConfigError(
            f"calibration: {file} is of a model of {calibration.dimension} dimensions, this one has {dimension}"
        )
    _check_fingerprint(file, calibration.fingerprint, checkpoint, pooling)
    return calibration


def _check_fingerprint(file: Path, made_of: Fingerprint, checkpoint: Checkpoint, pooling: str | None) -> None:
    """Refuse ranges of what the checkpoint was before."""
    if not made_of:
        _log.warning("%s does not say of which checkpoint it is, so it is not known whether it fits", file)
        return
    for name, value in fingerprint(checkpoint, pooling or made_of.get("pooling", "")).items():
        before = made_of.get(name)
        if before != value:
            raise ConfigError(
                f"calibration: {file} is stale: made with {name} {before!r}, but the model now has {value!r}; run "
                "`lazuli calibrate` again, or remove it"
            )


def _parse(content: dict[str, Any]) -> Calibration:
    version, dimension = content["version"], _parse_count(content, "dimension", "dimension")
    if version != _VERSION:
        raise ValueError(f"version: {version}, not {_VERSION}")
    ranges = tuple(_parse_range(entry, dimension, f"ranges[{place}]") for place, entry in enumerate(content["ranges"]))
    if not 0 < len(ranges) <= _MOST_RANGES:
        raise ValueError(f"ranges: {len(ranges)}, but there must be 1 to {_MOST_RANGES}")
    if not isinstance(content["normalize"], bool):
        raise ValueError(f"normalize: {content['normalize']!r}, but it must be true or false")
    made_of = content.get("fingerprint", {})
    if not isinstance(made_of, dict):
        raise ValueError("fingerprint: must be an object")
    return Calibration(dimension, content["normalize"], content["texts"], ranges, made_of)


def _parse_count(content: Mapping[str, Any], name: str, where: str) -> int:
    value = content[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{where}: {value!r}, but it must be a number from 1 on")
    return value


def _parse_range(entry: dict[str, Any], dimension: int, where: str) -> Range:
    count = _parse_count(entry, "dimensions", f"{where}.dimensions")
    if count > dimension:
        raise ValueError(f"{where}.dimensions: {count}, but the model has {dimension}")
    minimum, maximum = (_parse_side(entry[name], count, f"{where}.{name}") for name in ("minimum", "maximum"))
    below = np.flatnonzero(maximum < minimum)
    if len(below):
        place = int(below[0])
        raise ValueError(f"{where}.maximum[{place}]: {maximum[place]} is below the minimum, {minimum[place]}")
    if (maximum == minimum).all():
        raise ValueError(f"{where}.maximum: as the minimum in all {count} dimensions")
    return Range(count, minimum.tolist(), maximum.tolist())


def _parse_side(values: Any, count: int, where: str) -> np.ndarray:
    try:
        side = np.array(values, dtype=np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"{where}: must be a list of numbers") from None
    if side.shape != (count,):
        raise ValueError(f"{where}: of shape {list(side.shape)}, but there are {count} dimensions")
    wrong = np.flatnonzero(~(np.abs(side) <= np.finfo(np.float32).max))  # NaN, too
    if len(wrong):
        raise ValueError(f"{where}[{wrong[0]}]: {side[wrong[0]]} is no number of float32")
    return side
