"""What tells whether something was measured on the very checkpoint that is there now.

Takes a checkpoint, returns a few values that change where its vectors do. Reads samples of the weights, not the whole.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from lazuli.checkpoint import Checkpoint
from lazuli.weight_files import find_weight_files

Fingerprint = Mapping[str, str]
# Evenly over each file: training leaves some tensors as they are.
_SAMPLES, _SAMPLE_BYTES = 32, 4096
_SHOWN = 32


def fingerprint(checkpoint: Checkpoint, pooling: str) -> dict[str, str]:
    """Identify what makes the vectors of a checkpoint.

    Args:
        checkpoint: The checkpoint.
        pooling: `mean`, `cls` or `last`, as the engine has it.

    Raises:
        ConfigError: If its weights are not there.
    """
    return {
        "architecture": checkpoint.architecture,
        "pooling": pooling,
        "normalize": str(checkpoint.normalize).lower(),
        "layers": ", ".join(f"{layer.path.name} {layer.num_in}x{layer.num_out}" for layer in checkpoint.dense),
        "weights": _hash_files(checkpoint),
    }


def _hash_files(checkpoint: Checkpoint) -> str:
    files = find_weight_files(checkpoint.path)
    for layer in checkpoint.dense:
        files += find_weight_files(layer.path)
    digest = hashlib.sha256()
    for file in files:
        _add(digest, file, file.relative_to(checkpoint.path).as_posix())
    return digest.hexdigest()[:_SHOWN]


def _add(digest: "hashlib._Hash", file: Path, name: str) -> None:
    size = file.stat().st_size
    digest.update(f"{name} {size}\n".encode())
    with file.open("rb") as content:
        for number in range(_SAMPLES):
            content.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
            digest.update(content.read(_SAMPLE_BYTES))
