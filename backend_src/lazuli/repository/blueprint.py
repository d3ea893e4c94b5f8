"""What a new model is made from: the folders of this project's own model, under other names and with other parameters.

Takes a name and wishes; returns the content of folders. Writes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lazuli.launch.options import Door
from lazuli.repository.errors import RepositoryError
from lazuli.repository.model_config import ModelConfig
from lazuli.repository.model_folders import CONFIG, FolderContent
from lazuli.repository.names import PARTS, ModelNames
from lazuli.repository.settings import settle

_REMARK = "Written by `lazuli model add`, which also replaces it; part of the model "


@dataclass(frozen=True)
class Blueprint:
    """The built-in model of a task, read once.

    Attributes:
        contents: Built-in folder to its content.
        configs: Built-in folder to its configuration.
    """

    contents: Mapping[str, FolderContent]
    configs: Mapping[str, ModelConfig]

    @classmethod
    def read(cls, repository: Path, model: ModelNames) -> "Blueprint":
        """Read the built-in folders for a model's task.

        Raises:
            RepositoryError: If one cannot be read.
        """
        names = [part.built_in for part in PARTS[model.task]]
        try:
            contents = {name: FolderContent.read(repository / name) for name in names}
        except (OSError, UnicodeDecodeError) as error:
            raise RepositoryError(f"{repository}: cannot be read: {error}") from None
        configs = {
            name: ModelConfig(content.config, str(repository / name / CONFIG)) for name, content in contents.items()
        }
        return cls(contents, configs)

    def settle(self, wishes: Mapping[str, str]) -> dict[str, str]:
        """All parameters of the new model, as `settings.settle` says."""
        built_in: dict[str, str] = {}
        for config in self.configs.values():
            built_in.update(config.parameters)
        return settle(built_in, wishes)

    def parameters(self, built_in: str, settled: Mapping[str, str]) -> dict[str, str]:
        """The parameters of one part of the new model."""
        return {key: settled.get(key, value) for key, value in self.configs[built_in].parameters.items()}

    def build(self, model: ModelNames, door: Door, settled: Mapping[str, str]) -> dict[str, FolderContent]:
        """The folders of the new model.

        Args:
            model: Its names.
            door: The doors that it gets.
            settled: What `settle` returned.

        Returns:
            Folder name to content, steps first.

        Raises:
            RepositoryError: If the built-in configuration is not laid out as it was written.
        """
        names = {part.built_in: model.of(part) for part in PARTS[model.task]}
        wanted = set(model.folders(door))
        built = {}
        for built_in, name in names.items():
            if name in wanted:
                config = self.configs[built_in].renamed(names, settled, remark(model))
                built[name] = FolderContent(config.text, self.contents[built_in].version)
        return built


def remark(model: ModelNames) -> str:
    """What the first line of each of its configurations says."""
    return f"{_REMARK}{model.name}."


def is_part(text: str, model: ModelNames) -> bool:
    """Whether a configuration was written for this model."""
    return text.startswith(f"# {remark(model)}\n")
