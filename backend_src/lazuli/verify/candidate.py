"""The model that is to be verified: of a repository, of a checkpoint, or of a running server.

Takes words of the command line, returns a way to embed. Imports the engine only where it is to run.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lazuli.checkpoint import load_checkpoint
from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.errors import ConfigError
from lazuli.launch.options import Dtype

if TYPE_CHECKING:
    from lazuli.verify.embedders import Embed


class Protocol(StrEnum):
    """How to talk to a server."""

    GRPC = "grpc"
    HTTP = "http"


@dataclass(frozen=True)
class Opened:
    """A model that is ready.

    Attributes:
        embed: Texts to vectors.
        checkpoint: Of its reference.
        prompts: Names of its prompts.
    """

    embed: "Embed"
    checkpoint: str
    prompts: list[str]


@dataclass(frozen=True)
class Candidate:
    """What is to be verified.

    Attributes:
        model: A model of a repository, a checkpoint, or with `url` the name of a served model.
        url: Of a running server; None runs the engine in process.
        protocol: For the server.
        checkpoint: Of the reference; None takes the model's own.
        device: For the engine, like the others: instead of what the model's configuration says.
        dtype: Arithmetic.
        attention: Backend by name.
        pooling: How vectors come from tokens.
    """

    model: str
    url: str | None = None
    protocol: Protocol = Protocol.GRPC
    checkpoint: str | None = None
    device: str | None = None
    dtype: Dtype | None = None
    attention: str | None = None
    pooling: str | None = None

    def open(self) -> Opened:
        """Load it or connect.

        Raises:
            ConfigError: If there is no such model or checkpoint, or an option is unusable.
        """
        from lazuli.verify.embedders import engine_embedder, server_embedder

        if self.url is not None:
            if self.checkpoint is None:
                raise ConfigError("checkpoint: needed with --url: the reference and the prompts are read from it")
            prompts = list(load_checkpoint(self.checkpoint).prompts)
            return Opened(server_embedder(self.url, self.protocol.value, self.model), self.checkpoint, prompts)
        engine, tokenizer = self._configure()
        prompts = [*load_checkpoint(engine.checkpoint).prompts, *tokenizer.parsed_prompts()]
        return Opened(engine_embedder(engine, tokenizer), self.checkpoint or engine.checkpoint, prompts)

    def _configure(self) -> tuple[EngineConfig, TokenizerConfig]:
        """The parameters of the model, with the options in their place."""
        engine, tokenizer = self._read()
        given: dict[str, Any] = {
            "device": self.device,
            "dtype": None if self.dtype in (None, Dtype.AUTO) else self.dtype.value,
            "attention": self.attention,
            "pooling": self.pooling,
        }
        return replace(engine, **{name: value for name, value in given.items() if value is not None}), tokenizer

    def _read(self) -> tuple[EngineConfig, TokenizerConfig]:
        from lazuli.launch.repository import find_repositories
        from lazuli.repository.catalog import configs_of, parameters_of
        from lazuli.repository.errors import RepositoryError

        try:
            values = parameters_of(self.model, find_repositories())
        except RepositoryError as error:
            try:
                load_checkpoint(self.model)
            except ConfigError as other:
                raise ConfigError(f"{error}; {other}") from None
            return EngineConfig(checkpoint=self.model), TokenizerConfig(checkpoint=self.model)
        return configs_of(values)
