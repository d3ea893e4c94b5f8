"""The safetensors files of a checkpoint: whether all are there and whole, and how much they hold.

Takes a folder, returns sizes. Reads the heads of the files only, and knows nothing of architectures.
"""

import shlex
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path

from lazuli import weight_files
from lazuli.errors import ConfigError
from lazuli.repository.errors import RepositoryError
from lazuli.weight_files import INDEX, LegacyWeightsError, read_index

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
_LFS_MARK = b"version https://git-lfs"


@dataclass(frozen=True)
class WeightFiles:
    """What the files hold.

    Attributes:
        files: The files, one or the shards.
        num_bytes: Their size.
        num_parameters: The numbers in them.
        dtype: The type of most of these.
    """

    files: tuple[Path, ...]
    num_bytes: int
    num_parameters: int
    dtype: str


def read_weight_files(folder: Path) -> WeightFiles:
    """Look at the weights of a checkpoint.

    Raises:
        RepositoryError: If a file is missing, cut off, or of a format that is not read.
    """
    files = find_weight_files(folder)
    numbers: Counter[str] = Counter()
    names: set[str] = set()
    for file in files:
        for name, (dtype, count) in _read_head(file).items():
            names.add(name)
            numbers[dtype] += count
    _check_index(folder, names)
    common = numbers.most_common(1)[0][0] if numbers else "none"
    return WeightFiles(
        tuple(files), sum(file.stat().st_size for file in files), numbers.total(), _DTYPES.get(common, common)
    )


def find_weight_files(folder: Path) -> list[Path]:
    """`lazuli.weight_files.find_weight_files`, with a word on what to do.

    Raises:
        RepositoryError: If a file is missing, or of a format that is not read.
    """
    try:
        return weight_files.find_weight_files(folder)
    except LegacyWeightsError as error:
        raise RepositoryError(str(error), how_to_convert(str(folder))) from None
    except ConfigError as error:
        raise RepositoryError(str(error)) from None


def how_to_convert(name: str) -> str:
    """What turns old weights into safetensors."""
    code = (
        "import sys; from transformers import AutoModel; "
        "AutoModel.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])"
    )
    return (
        f"convert it, if you trust where it is from: python -c '{code}' {shlex.quote(name)} NEW_FOLDER; "
        "then copy the other .json files and the folders beside them"
    )


def _check_index(folder: Path, names: set[str]) -> None:
    if not (folder / INDEX).is_file():
        return
    lost = sorted(set(read_index(folder)) - names)
    if lost:
        raise RepositoryError(f"checkpoint: {folder / INDEX} names {lost[0]!r}, which is in none of the files")


def _read_head(file: Path) -> dict[str, tuple[str, int]]:
    """Tensor name to dtype and number of elements."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 - not a dictionary
            return {name: (part.get_dtype(), prod(part.get_shape())) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        with file.open("rb") as opened:
            if opened.read(len(_LFS_MARK)) == _LFS_MARK:
                raise RepositoryError(
                    f"checkpoint: {file} is a pointer of Git LFS, not the weights", "git lfs pull"
                ) from None
        raise RepositoryError(f"checkpoint: {file} is not whole ({error})", "fetch or copy the file again") from None
