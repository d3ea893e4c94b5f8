"""The models of a repository, and what is known of each without loading it.

Takes a folder; returns a record for each model, also of one that is broken. Changes nothing but what `remove` removes.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lazuli.checkpoint import load_checkpoint
from lazuli.config import EngineConfig
from lazuli.errors import ConfigError
from lazuli.launch.options import Door
from lazuli.launch.repository import built_in_repository, model_names
from lazuli.parameters import expand
from lazuli.repository.addition import check_ours
from lazuli.repository.errors import RepositoryError
from lazuli.repository.facts import Facts, examine, faults_told
from lazuli.repository.model_config import ModelConfig
from lazuli.repository.model_folders import CONFIG, VERSION, take_away
from lazuli.repository.names import ModelNames, Task, all_folders, check_name, models_among
from lazuli.repository.task_config import ReaderConfig, parameters_of_reader, reader_config
from lazuli.tokenwise.facts import DENSE

UNKNOWN = "?"
NONE = "-"


@dataclass
class Entry:
    """One model.

    Attributes:
        name: Its name.
        task: What it computes.
        doors: The doors that it has.
        output: What it answers with.
        dimension: The length of its dense vectors; `-` if it makes none.
        pooling: How tokens become a vector, or what the head reads; `-` if they do not.
        fault: What keeps it from being served; empty if it is complete.
    """

    name: str
    task: Task = Task.EMBED
    doors: list[Door] = field(default_factory=list)
    architecture: str = UNKNOWN
    output: str = UNKNOWN
    dimension: str = UNKNOWN
    limit: str = UNKNOWN
    pooling: str = UNKNOWN
    dtype: str = UNKNOWN
    checkpoint: str = UNKNOWN
    fault: str = ""


def entries(repository: Path) -> list[Entry]:
    """All models of a repository, by name."""
    folders = model_names(repository)
    return [_entry(repository, model, folders) for model in models_among(folders)]


def parameters_of(name: str, repositories: Sequence[Path]) -> dict[str, str]:
    """The parameters of a model by its name: those of all its parts together, with the variables that are set here.

    Raises:
        RepositoryError: If no repository has it.
    """
    for repository in repositories:
        folders = model_names(repository)
        for model in models_among(folders):
            if model.name == name:
                return _parameters(repository, [folder for folder in model.folders() if folder in folders])
    raise RepositoryError(f"name: there is no model {name!r} in {', '.join(map(str, repositories))}")


def configs_of(parameters: Mapping[str, str]) -> tuple[EngineConfig, ReaderConfig]:
    """The parameters of all parts of a model of any task: of its engine, and of what reads its texts.

    Raises:
        ConfigError: If one has a value that it cannot have.
    """
    engine = {name: value for name, value in parameters.items() if name in EngineConfig.__dataclass_fields__}
    config = EngineConfig.from_parameters(engine)
    task = Task(config.task)
    return config, reader_config(task, _of_reader(task, parameters))


def folders_of(repository: Path, name: str) -> list[str]:
    """The folders of an added model, for `remove`.

    Raises:
        RepositoryError: If there is none, or it is not one that was added.
    """
    check_name(name, model_names(built_in_repository()))
    present = [folder for folder in all_folders(name) if (repository / folder).exists()]
    if present:
        check_ours(repository, name, present)
        return present
    there = ", ".join(model.name for model in models_among(model_names(repository))) or "none"
    raise RepositoryError(f"name: there is no model {name!r} in {repository}; there are: {there}")


def remove(repository: Path, folders: list[str]) -> None:
    """Remove what `folders_of` found.

    Raises:
        LaunchError: If the disk does not allow it; then nothing has changed.
    """
    take_away(repository, folders)


def _entry(repository: Path, model: ModelNames, folders: list[str]) -> Entry:
    entry = Entry(model.name, model.task, model.doors_among(folders))
    try:
        missing = [name for door in entry.doors for name in model.folders(door) if name not in folders]
        parameters = _parameters(repository, [name for name in model.folders() if name in folders])
        entry.checkpoint = parameters.get("checkpoint", UNKNOWN)
        entry.dtype = parameters.get("dtype", UNKNOWN)
        if missing:
            raise RepositoryError(f"the folder {missing[0]} is missing")
        _look_into(entry, parameters)
    except (ConfigError, RepositoryError) as error:
        entry.fault = str(error)
    return entry


def _parameters(repository: Path, folders: list[str]) -> dict[str, str]:
    """The parameters of all parts, with the variables that are set here."""
    values: dict[str, str] = {}
    for name in folders:
        folder = repository / name
        if not (folder / VERSION).is_dir():
            raise RepositoryError(f"the folder {folder / VERSION} is missing")
        text = (folder / CONFIG).read_text(encoding="utf-8", errors="replace")
        values.update(ModelConfig(text, str(folder / CONFIG)).parameters)
    return {name: expand(value, os.environ) for name, value in values.items()}


def _look_into(entry: Entry, parameters: dict[str, str]) -> None:
    """Examine it as `lazuli model add` did: the files may have changed since, or somebody else wrote the folders."""
    with faults_told(entry.checkpoint):
        entry.architecture = load_checkpoint(entry.checkpoint).architecture
    engine = {name: value for name, value in parameters.items() if name in EngineConfig.__dataclass_fields__}
    if engine.get("task", Task.EMBED) != entry.task:
        raise RepositoryError(f"task: {engine['task']}, but its folders are those for the task {entry.task}")
    facts = examine(_of_reader(entry.task, parameters), engine)
    entry.output = _output(facts)
    entry.limit = str(facts.max_seq_length)
    entry.dimension = str(facts.dimension) if DENSE in facts.outputs else NONE
    entry.pooling = facts.pooling or NONE


def _output(facts: Facts) -> str:
    if facts.task is Task.CLASSIFY:
        return f"{len(facts.labels)} labels" if len(facts.labels) > 1 else "1 label"
    if facts.task is Task.RERANK:
        return f"score by {', '.join(facts.outputs)}" if facts.outputs else "score"
    return ", ".join(facts.outputs)


def _of_reader(task: Task, parameters: Mapping[str, str]) -> dict[str, str]:
    names = parameters_of_reader(task)
    return {name: value for name, value in parameters.items() if name in names}
