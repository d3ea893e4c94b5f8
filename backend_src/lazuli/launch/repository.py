"""Finds the model repositories and looks at which models they have.

Takes paths or nothing; returns folders. Reads no configuration: that is the server's business.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import lazuli
from lazuli.launch.errors import LaunchError
from lazuli.launch.folders import user_models
from lazuli.launch.options import Door
from lazuli.repository.names import BUILT_IN as BUILT_IN_MODEL
from lazuli.repository.names import BUILT_IN_FOLDERS, ModelNames, models_among

# What names this project's own repository where a path is expected.
BUILT_IN = "built-in"
_VARIABLE = "LAZULI_MODEL_REPOSITORY"


def find_repositories(explicit: Sequence[str | Path] = ()) -> list[Path]:
    """Choose the repositories: explicit, LAZULI_MODEL_REPOSITORY, or this project's own and the user's.

    Raises:
        LaunchError: There is none, one holds no model, or two hold models of one name.
    """
    if explicit:
        found = [_checked(path, "--model-repository") for path in explicit]
    elif listed := _listed():
        found = [_checked(path, _VARIABLE) for path in listed]
    else:
        found = [built_in_repository(), *([user_models()] if model_names(user_models()) else [])]
    repositories = list(dict.fromkeys(found))
    _check_names(repositories)
    return repositories


def built_in_repository() -> Path:
    """This project's own repository: in the source tree, in LAZULI_MODEL_REPOSITORY, or in the current folder.

    New models are made from its models.

    Raises:
        LaunchError: There is none.
    """
    needed = set(BUILT_IN_FOLDERS)
    for folder in (source_root() / "model_repository", *map(Path, _listed()), Path("model_repository")):
        if needed <= set(model_names(folder)):
            return folder.resolve()
    raise LaunchError(
        f"this project's model repository is neither in {source_root()} nor in the current folder",
        f"pass --model-repository PATH or set {_VARIABLE}",
    )


def model_names(repository: Path) -> list[str]:
    """The models of a repository; empty if there is no such folder."""
    return sorted(path.parent.name for path in repository.glob("[!.]*/config.pbtxt"))


def count_processes(repositories: Sequence[Path], door: Door = Door.BOTH, wanted: Sequence[str] = ()) -> int:
    """How many of the models that will be loaded have a process of their own; takes what `models_to_load` takes."""
    python = {path.parent.parent.name for repository in repositories for path in repository.glob("[!.]*/1/model.py")}
    if door is Door.BOTH and not wanted:
        return len(python)
    models = models_among([name for repository in repositories for name in model_names(repository)])
    chosen = [model for model in models if not wanted or model.name in wanted]
    return len(python & {folder for model in chosen for folder in model.folders(door)})


def models_to_load(repositories: Sequence[Path], door: Door, wanted: Sequence[str] = ()) -> list[str]:
    """The models to name to the server, which loads their steps by itself.

    They are always named: only in this mode can a holder of the admin key load and unload models, and folders that are
    no models, which would keep the server from starting, are left alone.

    Args:
        repositories: Where to look.
        door: The door that is wanted.
        wanted: Names of models; empty for all.

    Raises:
        LaunchError: A model is not there, or no model has this door.
    """
    folders = [name for repository in repositories for name in model_names(repository)]
    if door is Door.BOTH and not wanted:
        return folders
    places = ", ".join(map(str, repositories))
    models = _chosen(models_among(folders), wanted, places)
    named = [model.door(one) for model in models for one in model.doors_among(folders) if door in (one, Door.BOTH)]
    doors = [name for name in named if name is not None]
    if not doors:
        examples = [name for model in [*models, ModelNames(BUILT_IN_MODEL)] if (name := model.door(door))]
        raise LaunchError(f"--door {door} needs a model such as {examples[0]}, which {places} does not have")
    return doors


def package_parent() -> Path:
    """The folder that holds the package `lazuli`: site-packages, or `backend_src` of a checkout."""
    return Path(lazuli.__path__[0]).resolve().parent


def source_root() -> Path:
    """The top of the checkout, if this is one."""
    return package_parent().parent


def _chosen(models: list[ModelNames], wanted: Sequence[str], places: str) -> list[ModelNames]:
    by_name = {model.name: model for model in models}
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise LaunchError(
            f"--model {unknown[0]}: there is no such model in {places}; there are: {', '.join(by_name) or 'none'}",
            "add it with `lazuli model add`",
        )
    return [by_name[name] for name in wanted] if wanted else models


def _listed() -> list[str]:
    return [entry for entry in os.environ.get(_VARIABLE, "").split(os.pathsep) if entry]


def _checked(path: str | Path, name: str) -> Path:
    if path == BUILT_IN:
        return built_in_repository()
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise LaunchError(f"{name} {path} is not a folder")
    if not model_names(folder):
        raise LaunchError(f"{name} {path} holds no model (no */config.pbtxt)")
    return folder.resolve()


def _check_names(repositories: list[Path]) -> None:
    """The server would refuse both models of one name, in words that do not tell where they are."""
    places: dict[str, Path] = {}
    for repository in repositories:
        for name in model_names(repository):
            if name in places:
                raise LaunchError(
                    f"the model {name} is both in {places[name]} and in {repository}",
                    "serve one of the two repositories, or remove one of the two models",
                )
            places[name] = repository
