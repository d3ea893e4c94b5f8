"""Where the engine keeps what can be made again: profiles of graphs and compiled kernels.

Takes the parameter `cache_dir`, returns a folder. Knows nothing of what is put there.
"""

import logging
import os
from pathlib import Path

_log = logging.getLogger(__name__)
# Variables that name the caches of the libraries that compile kernels, and their folder below ours.
_COMPILERS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": "flash_attn_cute",
}


def find_cache_folder(name: str | None) -> Path:
    """The folder `name`; None is `lazuli` in the user's cache folder. It need not exist."""
    if name is not None:
        return Path(name).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(os.path.expanduser("~")) / ".cache") / "lazuli"


def keep_compiled_kernels(folder: Path) -> None:
    """Let compilers keep their results below `folder`, unless the environment says where.

    Call it before they are imported.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        usable = os.access(folder, os.W_OK)
    except OSError:
        usable = False
    if not usable:
        _log.warning("cache_dir: %s cannot be written; kernels and graphs are prepared anew at each start", folder)
        return
    for variable, below in _COMPILERS.items():
        os.environ.setdefault(variable, str(folder / below))
