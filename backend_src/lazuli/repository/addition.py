"""Adds a checkpoint to a model repository, under a name.

Takes what the user asks for; returns what was added. Everything is checked before anything is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lazuli.launch.options import Door
from lazuli.launch.repository import built_in_repository, model_names
from lazuli.repository.blueprint import Blueprint, is_part
from lazuli.repository.checkpoint_source import locate
from lazuli.repository.errors import RepositoryError
from lazuli.repository.facts import Facts, check_small_files, examine, find_task
from lazuli.repository.model_folders import CONFIG, put
from lazuli.repository.names import ModelNames, Task, all_folders, check_name, doors_of


@dataclass(frozen=True)
class Wish:
    """What is to be added.

    Attributes:
        name: The model's name.
        checkpoint: A folder, a packaged checkpoint or a name of the hub.
        repository: Where to.
        task: What it computes; None is what the checkpoint is for.
        door: The doors that it gets, of those that its task has.
        parameters: Parameters to fix, by name.
        force: Replace the model if it exists.
    """

    name: str
    checkpoint: str
    repository: Path
    task: Task | None = None
    door: Door = Door.BOTH
    parameters: Mapping[str, str] = field(default_factory=dict)
    force: bool = False


@dataclass(frozen=True)
class Added:
    """What was added.

    Attributes:
        model: Its names.
        checkpoint: As it is written in the configuration.
        folders: The folders that it has, steps first.
        facts: What its checkpoint is.
    """

    model: ModelNames
    checkpoint: str
    folders: list[str]
    facts: Facts


def add(wish: Wish, show: Callable[[str], None]) -> Added:
    """Check a checkpoint and write the folders of its model.

    Args:
        wish: What to add.
        show: Says what the user should know while it takes time.

    Raises:
        LaunchError: If it cannot be served, or not be written; then nothing has changed.
    """
    source = built_in_repository()
    check_name(wish.name, model_names(source))
    replaced = _check_place(wish, source)

    def check(folder: Path) -> None:
        """Complain before a long download."""
        task = wish.task or find_task(str(folder))
        _read_blueprint(wish, source, task).settle(wish.parameters)
        check_small_files(folder, task)

    if wish.task is not None:
        _read_blueprint(wish, source, wish.task).settle(wish.parameters)
    checkpoint = locate(wish.checkpoint, check, show)
    model = ModelNames(wish.name, wish.task or find_task(checkpoint))
    blueprint = _read_blueprint(wish, source, model.task)
    settled = blueprint.settle({**wish.parameters, "checkpoint": checkpoint})
    reader, engine, *_ = blueprint.steps(model.task, settled)
    facts = examine(reader, engine)
    folders = blueprint.build(model, wish.door, settled)
    put(wish.repository, folders, replaced)
    return Added(model, checkpoint, list(folders), facts)


def _read_blueprint(wish: Wish, source: Path, task: Task) -> Blueprint:
    doors = doors_of(task)
    if wish.door not in (*doors, Door.BOTH):
        raise RepositoryError(f"--door {wish.door}: a model for the task {task} has the door {', '.join(doors)} only")
    return Blueprint.read(source, task)


def _check_place(wish: Wish, source: Path) -> list[str]:
    """The folders that stand in the way, all of the same model and free to be replaced."""
    if wish.repository.exists() and not wish.repository.is_dir():
        raise RepositoryError(f"--repository {wish.repository} is not a folder")
    if wish.repository.exists() and wish.repository.resolve() == source:
        raise RepositoryError(
            f"--repository {wish.repository} holds the built-in models, which stay as they are", "choose another folder"
        )
    present = [name for name in all_folders(wish.name) if (wish.repository / name).exists()]
    if present and not wish.force:
        raise RepositoryError(
            f"name: {wish.name!r} exists in {wish.repository}: {', '.join(present)}",
            "choose another name, or pass --force to replace it",
        )
    check_ours(wish.repository, wish.name, present)
    return present


def check_ours(repository: Path, model: str, present: list[str]) -> None:
    """Check that these folders were written for this model.

    Raises:
        RepositoryError: If somebody else made one of them.
    """
    for name in present:
        config = repository / name / CONFIG
        if not config.is_file() or not is_part(config.read_text(encoding="utf-8", errors="replace"), model):
            raise RepositoryError(
                f"{repository / name} was not written by `lazuli model add {model}`, so it stays as it is",
                "choose another name, or move it away yourself",
            )
