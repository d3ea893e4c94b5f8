"""The parameters of the `context_tokenizer` models, checked once at start; as `config.py` has them for others."""

from dataclasses import dataclass

from lazuli.config import TokenizerConfig
from lazuli.errors import ConfigError


@dataclass(frozen=True)
class ContextTokenizerConfig(TokenizerConfig):
    """Parameters of `context_tokenizer`.

    Attributes:
        max_seq_length: Most tokens of a document, with all that stands around and between its chunks.
        separator: A special token to put between the chunks of a document, or empty; auto follows the checkpoint.
    """

    separator: str | None = None


def check_pooling(pooling: str) -> None:
    """Check how a model's vectors are made of tokens.

    Raises:
        ConfigError: If not of all: then there is nothing to make those of chunks of.
    """
    if pooling != "mean":
        raise ConfigError(
            f"pooling: {pooling!r}, but the vectors of chunks are means of their tokens; task context needs a model "
            "that is pooled so, or pooling=mean if it shall be"
        )
