"""Where files of a user are kept: the cache, state and data folders (XDG).

Takes the environment; returns folders. Does not know what is put there.
"""

import os
from pathlib import Path

from lazuli.launch.errors import LaunchError


def cache_folder() -> Path:
    """The folder for what can be made again."""
    return _folder("XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """The folder for logs."""
    return _folder("XDG_STATE_HOME", ".local/state")


def user_models() -> Path:
    """The model repository of the user; it may not exist."""
    return _path("XDG_DATA_HOME", ".local/share") / "models"


def _path(variable: str, below_home: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / below_home) / "lazuli"


def _folder(variable: str, below_home: str) -> Path:
    folder = _path(variable, below_home)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = f"set {variable} to a folder you can write to"
        raise LaunchError(f"cannot make {folder}: {error.strerror}", remedy) from error
    return folder
