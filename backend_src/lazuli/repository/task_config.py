"""What reads the texts of a task: its parameters, and the tokenizer that they describe.

Takes the task and string parameters, returns the limit of a text. Knows the tokenizers of all tasks, and no engine.
"""

from collections.abc import Mapping
from typing import Protocol

from lazuli.checkpoint import Checkpoint
from lazuli.config import TokenizerConfig
from lazuli.context.config import ContextTokenizerConfig
from lazuli.errors import ConfigError
from lazuli.pairs.config import PairTokenizerConfig
from lazuli.repository.names import Task


class ReaderConfig(Protocol):
    """Parameters of a model that reads texts."""

    @property
    def checkpoint(self) -> str:
        """The folder, or the name of a packaged checkpoint."""
        ...


def reader_config(task: Task, values: Mapping[str, str]) -> ReaderConfig:
    """Parse the parameters of what reads the texts of a task.

    Raises:
        ConfigError: If one is unknown, malformed or out of range.
    """
    return _config_type(task).from_parameters(values)


def parameters_of_reader(task: Task) -> frozenset[str]:
    """The names of these parameters."""
    return frozenset(_config_type(task).__dataclass_fields__)


def _config_type(task: Task) -> type[PairTokenizerConfig] | type[TokenizerConfig]:
    if task is Task.RERANK:
        return PairTokenizerConfig
    return ContextTokenizerConfig if task is Task.CONTEXT else TokenizerConfig


def check_reader(config: ReaderConfig, checkpoint: Checkpoint) -> None:
    """Check that what reads the texts makes what the engine of the checkpoint takes.

    Raises:
        ConfigError: If it does not.
    """
    if isinstance(config, PairTokenizerConfig):
        from lazuli.pairs.tokenizer import check_template

        check_template(config, checkpoint)


def read_limit(config: ReaderConfig) -> int:
    """Load the tokenizer, which tells whether it can be; returns the most tokens of a text or pair.

    Raises:
        ConfigError: If it cannot be loaded.
    """
    # Imported here: the library takes a while to load.
    from lazuli.context.tokenizer import ContextTokenizer
    from lazuli.pairs.tokenizer import load_pair_tokenizer
    from lazuli.tokenizer import TextTokenizer

    try:
        if isinstance(config, PairTokenizerConfig):
            return load_pair_tokenizer(config).max_seq_length
        if isinstance(config, ContextTokenizerConfig):
            return ContextTokenizer.from_config(config).max_seq_length
        assert isinstance(config, TokenizerConfig), "there is no other kind"
        return TextTokenizer.from_config(config).max_seq_length
    except ConfigError:
        raise
    except Exception as error:  # the library raises plain ones for a file that it cannot read
        raise ConfigError(f"checkpoint: the tokenizer of {config.checkpoint} cannot be read ({error})") from None
