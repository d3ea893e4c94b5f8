"""The names of a model and of the folders that make it up.

Takes a name, or the names of the folders in a repository; returns names. Looks at no file.

The model NAME answers to NAME, and one for vectors in parts to NAME.stream; its steps have names of their own,
NAME.tokenizer and so on. As no model may be named like a step, two models never need the same folder, and so
NAME-embedding stays free.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from lazuli.launch.options import Door
from lazuli.repository.errors import RepositoryError

MAX_LENGTH = 128
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Task(StrEnum):
    """What a model computes."""

    EMBED = "embed"
    RERANK = "rerank"
    CLASSIFY = "classify"
    CONTEXT = "context"


@dataclass(frozen=True)
class Part:
    """One folder of a model.

    Attributes:
        suffix: What follows the model's name; no two tasks have steps of one suffix.
        blueprint: The folder that it is made from.
        doors: The doors that need it.
        is_door: Whether clients with texts call it.
    """

    suffix: str
    blueprint: str
    doors: Collection[Door] = (Door.UNARY,)
    is_door: bool = False


# Steps come before the doors that call them: first what reads texts, then the engine.
PARTS = {
    Task.EMBED: (
        Part(".tokenizer", "tokenizer", (Door.UNARY, Door.STREAM)),
        Part(".embedding", "embedding"),
        Part(".embedding_stream", "embedding_stream", (Door.STREAM,)),
        Part("", "embed", is_door=True),
        Part(".stream", "embed_stream", (Door.STREAM,), is_door=True),
    ),
    Task.RERANK: (
        Part(".rerank_tokenizer", "rerank_tokenizer"),
        Part(".reranking", "reranking"),
        Part("", "rerank", is_door=True),
    ),
    Task.CLASSIFY: (
        Part(".classify_tokenizer", "classify_tokenizer"),
        Part(".classification", "classification"),
        Part("", "classify", is_door=True),
    ),
    Task.CONTEXT: (
        Part(".context_tokenizer", "context_tokenizer"),
        Part(".contextual", "contextual"),
        Part("", "embed_context", is_door=True),
    ),
}
# The folders of this project's own repository, which are a model as they are.
BUILT_IN = "embed"
BUILT_IN_FOLDERS = tuple(part.blueprint for part in PARTS[Task.EMBED])


@dataclass(frozen=True)
class ModelNames:
    """A model and its folders.

    Attributes:
        name: Its name.
        task: What it computes.
    """

    name: str
    task: Task = Task.EMBED

    @property
    def is_built_in(self) -> bool:
        """Whether it is this project's own, whose folders have names of their own."""
        return self.task is Task.EMBED and self.name == BUILT_IN

    def of(self, part: Part) -> str:
        """The folder's name of a part."""
        return part.blueprint if self.is_built_in else self.name + part.suffix

    def folders(self, door: Door = Door.BOTH) -> list[str]:
        """The folders that a door needs, steps first."""
        return [self.of(part) for part in parts_of(self.task, door)]

    def door(self, door: Door) -> str | None:
        """The model to call at the unary or the stream door; None if its task has no such door."""
        return next((self.of(part) for part in parts_of(self.task, door) if part.is_door), None)

    def doors_among(self, folders: Collection[str]) -> list[Door]:
        """The doors that these folders have."""
        return [door for door in (Door.UNARY, Door.STREAM) if self.door(door) in folders]


def parts_of(task: Task, door: Door) -> list[Part]:
    """The parts that a door needs, steps first."""
    return [part for part in PARTS[task] if door is Door.BOTH or door in part.doors]


def doors_of(task: Task) -> list[Door]:
    """The doors that a model for a task can have."""
    return [door for door in (Door.UNARY, Door.STREAM) if parts_of(task, door)]


def all_folders(name: str) -> list[str]:
    """The folders that a model of this name can have, whatever it computes, steps first."""
    models = [ModelNames(name, task) for task in Task]
    steps = [step for model in models for step in _steps(model)]
    return list(dict.fromkeys([*steps, *(folder for model in models for folder in model.folders())]))


def models_among(folders: Collection[str]) -> list[ModelNames]:
    """The models that folders of these names make up: those that have a door, and its tokenizer or engine."""
    known = []
    for folder in sorted(folders):
        for task in Task:
            suffixes = [part.suffix for part in PARTS[task] if part.is_door and folder.endswith(part.suffix)]
            names = [folder.removesuffix(suffix) for suffix in suffixes]
            if task is Task.EMBED and folder in BUILT_IN_FOLDERS:
                names = [BUILT_IN] if any(part.blueprint == folder and part.is_door for part in PARTS[task]) else []
            models = [ModelNames(name, task) for name in names]
            known += [model for model in models if any(step in folders for step in _steps(model))]
    return list(dict.fromkeys(known))


def check_name(name: str, taken: Collection[str] = ()) -> None:
    """Check a name for a new model.

    Args:
        name: The name.
        taken: Names of this project's own models.

    Raises:
        RepositoryError: If it is malformed, or meant for something else.
    """
    if not _NAME.fullmatch(name):
        raise RepositoryError(
            f"name: {name!r} must begin with a letter or digit and hold letters, digits and . _ - only"
        )
    if len(name) > MAX_LENGTH:
        raise RepositoryError(f"name: {len(name)} characters, but at most {MAX_LENGTH} are allowed")
    own = {*BUILT_IN_FOLDERS, *taken}
    if name in own:
        raise RepositoryError(f"name: {name!r} is a built-in model; built in are {', '.join(sorted(own))}")
    for suffix in sorted({part.suffix for parts in PARTS.values() for part in parts if part.suffix}):
        if name.endswith(suffix):
            raise RepositoryError(f"name: {name!r} ends with {suffix}, which names a part of a model")


def _steps(model: ModelNames) -> list[str]:
    return [model.of(part) for part in PARTS[model.task] if not part.is_door]
