"""What a new model is made from: folders of this project, under other names and with other parameters.

Takes a name and wishes; returns the content of folders. Writes nothing. Models for vectors are made from the built-in
one; those for other tasks from folders in the package, which are no model as they are: no checkpoint comes with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lazuli.launch.options import Door
from lazuli.repository.errors import RepositoryError
from lazuli.repository.model_config import ModelConfig
from lazuli.repository.model_folders import CONFIG, FolderContent
from lazuli.repository.names import PARTS, ModelNames, Task
from lazuli.repository.settings import settle

_PACKAGED = Path(__file__).parent / "blueprints"
_REMARK = "Written by `lazuli model add`, which also replaces it; part of the model "


@dataclass(frozen=True)
class Blueprint:
    """The folders for a task, read once.

    Attributes:
        contents: Folder to its content.
        configs: Folder to its configuration.
    """

    contents: Mapping[str, FolderContent]
    configs: Mapping[str, ModelConfig]

    @classmethod
    def read(cls, repository: Path, task: Task) -> "Blueprint":
        """Read the folders for a task.

        Args:
            repository: This project's own.
            task: What the model computes.

        Raises:
            RepositoryError: If one cannot be read.
        """
        places = {part.blueprint: _place(repository, part.blueprint) for part in PARTS[task]}
        try:
            contents = {name: FolderContent.read(place) for name, place in places.items()}
        except (OSError, UnicodeDecodeError) as error:
            raise RepositoryError(f"{repository}: cannot be read: {error}") from None
        configs = {name: ModelConfig(content.config, str(places[name] / CONFIG)) for name, content in contents.items()}
        return cls(contents, configs)

    def settle(self, wishes: Mapping[str, str]) -> dict[str, str]:
        """All parameters of the new model, as `settings.settle` says."""
        parameters: dict[str, str] = {}
        for config in self.configs.values():
            parameters.update(config.parameters)
        return settle(parameters, wishes)

    def steps(self, task: Task, settled: Mapping[str, str]) -> list[dict[str, str]]:
        """The parameters of the steps of the new model: of what reads texts, and of the engine, once for each door."""
        configs = [self.configs[part.blueprint] for part in PARTS[task] if not part.is_door]
        return [{key: settled.get(key, value) for key, value in config.parameters.items()} for config in configs]

    def build(self, model: ModelNames, door: Door, settled: Mapping[str, str]) -> dict[str, FolderContent]:
        """The folders of the new model.

        Args:
            model: Its names.
            door: The doors that it gets.
            settled: What `settle` returned.

        Returns:
            Folder name to content, steps first.

        Raises:
            RepositoryError: If a configuration is not laid out as it was written.
        """
        names = {part.blueprint: model.of(part) for part in PARTS[model.task]}
        wanted = set(model.folders(door))
        built = {}
        for blueprint, name in names.items():
            if name in wanted:
                config = self.configs[blueprint].renamed(names, settled, remark(model.name))
                built[name] = FolderContent(config.text, self.contents[blueprint].version)
        return built


def remark(model: str) -> str:
    """What the first line of each configuration of a model says."""
    return f"{_REMARK}{model}."


def is_part(text: str, model: str) -> bool:
    """Whether a configuration was written for this model."""
    return text.startswith(f"# {remark(model)}\n")


def _place(repository: Path, name: str) -> Path:
    packaged = _PACKAGED / name
    return packaged if packaged.is_dir() else repository / name
