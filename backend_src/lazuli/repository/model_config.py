"""The `config.pbtxt` of one model: read, and rewritten under another name with other parameters.

Takes and returns its text, comments and all. Does not know what the parameters mean.
"""

import re
from collections.abc import Mapping
from typing import Any

from lazuli.repository.errors import RepositoryError

_STRING = r'"((?:[^"\\\n]|\\.)*)"'
_NAME = re.compile(rf"^name: {_STRING}", re.MULTILINE)
_STEP = re.compile(rf"(\bmodel_name: ){_STRING}")
_PARAMETER = re.compile(rf"(\{{ key: {_STRING}, value: \{{ string_value: ){_STRING}( \}} \}})")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class ModelConfig:
    """The text of a `config.pbtxt` and what it says.

    Attributes:
        text: The text.
        steps: The models that an ensemble calls, in order.
        parameters: Parameter name to value.
    """

    def __init__(self, text: str, source: str = "config.pbtxt") -> None:
        """Read a text.

        Args:
            text: The text.
            source: What error messages call it.

        Raises:
            RepositoryError: If it cannot be parsed.
        """
        # Imported here: a second that not every command needs to wait.
        from google.protobuf import text_format
        from tritonclient.grpc import model_config_pb2

        try:
            parsed: Any = text_format.Parse(text, model_config_pb2.ModelConfig())
        except text_format.ParseError as error:
            raise RepositoryError(f"{source}: {error}") from None
        self.text = text
        self.name: str = parsed.name
        self.steps: list[str] = [step.model_name for step in parsed.ensemble_scheduling.step]
        self.parameters: dict[str, str] = {key: value.string_value for key, value in parsed.parameters.items()}
        self._source = source

    def renamed(self, names: Mapping[str, str], parameters: Mapping[str, str], remark: str) -> "ModelConfig":
        """The same configuration for another model.

        Args:
            names: Old name to new one, of the model itself and of the steps.
            parameters: New values; those that it does not have are left out.
            remark: A first line of comment.

        Raises:
            RepositoryError: If the text is not laid out as this project's own are.
        """
        text = _NAME.sub(lambda match: f"name: {_quote(names[self.name])}", self.text, count=1)
        text = _STEP.sub(lambda match: match[1] + _quote(names[match[2]]), text)

        def value_of(match: re.Match[str]) -> str:
            value = parameters.get(match[2])
            return match[0] if value is None else f"{match[1]}{_quote(value)}{match[4]}"

        result = ModelConfig(f"# {remark}\n{_PARAMETER.sub(value_of, text)}", self._source)
        wanted = {key: parameters.get(key, value) for key, value in self.parameters.items()}
        as_asked = (names[self.name], [names[step] for step in self.steps], wanted)
        if (result.name, result.steps, result.parameters) != as_asked:
            raise RepositoryError(f"{self._source}: not laid out as it was written; a model cannot be made from it")
        return result


def _quote(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'
