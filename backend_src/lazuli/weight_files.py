"""Which files hold the weights of a checkpoint.

Takes a folder, returns paths. Opens no file but the index, and knows nothing of torch.
"""

import json
from pathlib import Path

from lazuli.errors import ConfigError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LEGACY_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack")


class LegacyWeightsError(ConfigError):
    """The weights are in a pickle or another old format, which is not read."""


def find_weight_files(folder: Path) -> list[Path]:
    """The file, or the shards that the index names.

    Raises:
        LegacyWeightsError: If there are only files of an old format.
        ConfigError: If a file is missing, or the index is none.
    """
    if (folder / INDEX).is_file():
        files = [folder / name for name in sorted(set(read_index(folder).values()))]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise ConfigError(
                f"checkpoint: {len(missing)} of {len(files)} files that {folder / INDEX} names are missing, "
                f"the first is {missing[0]}"
            )
        return files
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    legacy = next((file.name for pattern in LEGACY_PATTERNS for file in sorted(folder.glob(pattern))), None)
    if legacy is None:
        raise ConfigError(f"checkpoint: {folder} has neither {SINGLE} nor {INDEX}")
    raise LegacyWeightsError(
        f"checkpoint: the weights of {folder} are in {legacy}, a pickle or another old format, which is not read"
    )


def read_index(folder: Path) -> dict[str, str]:
    """Tensor name to the name of its file.

    Raises:
        ConfigError: If the index is not one.
    """
    try:
        index = dict(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"checkpoint: {folder / INDEX} is not an index of weights ({error!r})") from None
    if not index:
        raise ConfigError(f"checkpoint: {folder / INDEX} is not an index of weights (it names none)")
    return index
