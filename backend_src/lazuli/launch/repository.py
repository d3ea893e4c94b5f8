"""Finds the model repository and looks at which models it has.

Takes a path or nothing; returns a folder. Reads no configuration: that is the server's business.
"""

import os
from pathlib import Path

import lazuli
from lazuli.launch.errors import LaunchError
from lazuli.launch.options import Door

DOOR_MODELS = {Door.UNARY: "embed", Door.STREAM: "embed_stream"}


def find_repository(explicit: Path | None) -> Path:
    """Choose the repository: explicit, LAZULI_MODEL_REPOSITORY, the source tree's or ./model_repository.

    Raises:
        LaunchError: There is none, or it holds no model.
    """
    if explicit is not None:
        return _checked(explicit, "--model-repository")
    from_environment = os.environ.get("LAZULI_MODEL_REPOSITORY")
    if from_environment:
        return _checked(Path(from_environment), "LAZULI_MODEL_REPOSITORY")
    for folder in (source_root() / "model_repository", Path("model_repository")):
        if model_names(folder):
            return folder.resolve()
    raise LaunchError(
        f"no model repository in {source_root()} or in the current folder",
        "pass --model-repository PATH or set LAZULI_MODEL_REPOSITORY",
    )


def model_names(repository: Path) -> list[str]:
    """The models of a repository; empty if there is no such folder."""
    return sorted(path.parent.name for path in repository.glob("*/config.pbtxt"))


def models_to_load(repository: Path, door: Door) -> list[str]:
    """The models to name to the server, which loads their steps by itself; `*` means everything.

    They are always named: only in this mode can a holder of the admin key load and unload models.

    Raises:
        LaunchError: The repository lacks the model of this door.
    """
    if door is Door.BOTH:
        return ["*"]
    model = DOOR_MODELS[door]
    if model not in model_names(repository):
        raise LaunchError(f"--door {door} needs the model {model}, which {repository} does not have")
    return [model]


def package_parent() -> Path:
    """The folder that holds the package `lazuli`: site-packages, or `backend_src` of a checkout."""
    return Path(lazuli.__path__[0]).resolve().parent


def source_root() -> Path:
    """The top of the checkout, if this is one."""
    return package_parent().parent


def _checked(path: Path, name: str) -> Path:
    if not path.is_dir():
        raise LaunchError(f"{name} {path} is not a folder")
    if not model_names(path):
        raise LaunchError(f"{name} {path} holds no model (no */config.pbtxt)")
    return path.resolve()
