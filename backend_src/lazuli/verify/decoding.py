"""What encoded vectors stand for.

Takes vectors as a model gives them in an encoding, returns floats. Knows nothing of engines: ranges come from the file
of `lazuli calibrate`.
"""

import numpy as np

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.outputs.calibration import find_calibration
from lazuli_client import Ranges

_NATIVE_SCALE = 127


def decode(values: np.ndarray, encoding: str, checkpoint: Checkpoint, calibration: str | None = None) -> np.ndarray:
    """Undo an encoding, as far as that is possible.

    Args:
        values: [N, D], or packed bits [N, D / 8].
        encoding: One of `lazuli.options.ENCODINGS`.
        checkpoint: Of the model: has the ranges beside it, or a quantiser of its own.
        calibration: File of the ranges, if it is elsewhere.

    Returns:
        [N, D] float32. Of integers the middle of the step that each stands for; of a model with its own quantiser what
        that rounded, which is tanh of its vectors. Of bits -1 and 1.

    Raises:
        ConfigError: If there are no ranges.
    """
    native = checkpoint.has_quantizer
    if encoding == "ubinary" or (encoding == "binary" and not native):
        return _unpack(values, encoding)
    if encoding not in ("int8", "uint8"):
        return values.astype(np.float32)
    if native:
        return values.astype(np.float32) / _NATIVE_SCALE
    found = find_calibration(calibration, checkpoint, values.shape[1])
    if found is None:
        raise ConfigError(f"{checkpoint.path}: no file of `lazuli calibrate`, without which {encoding} means nothing")
    known = found.ranges[found.places[values.shape[1]]]
    return Ranges({known.dimensions: np.array([known.minimum, known.maximum], np.float32)}).decode(values)


def _unpack(values: np.ndarray, encoding: str) -> np.ndarray:
    packed = values if encoding == "ubinary" else (values.astype(np.int16) + 128).astype(np.uint8)
    signs: np.ndarray = np.unpackbits(packed, axis=1).astype(np.float32) * 2 - 1
    return signs
