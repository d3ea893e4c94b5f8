"""The model that is to be verified: of a repository, of a checkpoint, or of a running server.

Takes words of the command line, returns what is known of it and a way to ask it. Imports the engine only where it is to
run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.errors import ConfigError
from lazuli.heads.task import CONTEXT, EMBED, detect_task
from lazuli.launch.options import Dtype
from lazuli.repository.names import Task
from lazuli.repository.task_config import ReaderConfig, reader_config
from lazuli.tokenwise.facts import read_token_facts
from lazuli.verify.model import Model

if TYPE_CHECKING:
    from lazuli_client.tls import Tls


class Protocol(StrEnum):
    """How to talk to a server."""

    GRPC = "grpc"
    HTTP = "http"


@dataclass(frozen=True)
class Target:
    """What is known of a model before it is loaded.

    Attributes:
        task: What it computes.
        checkpoint: Its own.
        reference: The checkpoint of its reference.
        reader: Parameters of what reads its texts.
        calibration: File of the ranges of int8 and uint8, if it is elsewhere.
        open: Loads it or connects.
    """

    task: str
    checkpoint: Checkpoint
    reference: Checkpoint
    reader: ReaderConfig
    calibration: str | None
    open: Callable[[], Model]

    def choose_output(self, wanted: str | None) -> str:
        """What it is asked for: what the caller wants, else what a request gets that does not say.

        Raises:
            ConfigError: If it is not a model for vectors.
        """
        if self.task in (EMBED, CONTEXT):
            facts = read_token_facts(self.checkpoint)
            return wanted or ("float32" if facts.dense else facts.outputs[0])
        if wanted is not None:
            raise ConfigError(f"output: {wanted}, but the model is for the task {self.task}, which has one only")
        return "float32"


@dataclass(frozen=True)
class Candidate:
    """What is to be verified.

    Attributes:
        model: A model of a repository, a checkpoint, or with `url` the name of a served model.
        url: Of a running server; None runs the engine in process.
        protocol: For the server.
        checkpoint: Of the reference; None takes the model's own.
        task: What it computes; None asks its configuration, or its checkpoint.
        device: For the engine, like the others: instead of what the model's configuration says.
        dtype: Arithmetic.
        attention: Backend by name.
        pooling: How vectors come from tokens.
        tls: For the server; None leaves it to the scheme of `url`.
    """

    model: str
    url: str | None = None
    protocol: Protocol = Protocol.GRPC
    checkpoint: str | None = None
    task: Task | None = None
    device: str | None = None
    dtype: Dtype | None = None
    attention: str | None = None
    pooling: str | None = None
    tls: "Tls | None" = None

    def find(self) -> Target:
        """Look at its configuration and its checkpoint.

        Raises:
            ConfigError: If there is no such model or checkpoint, or an option is unusable.
        """
        if self.url is not None:
            return self._find_served(self.url)
        if self.tls is not None:
            raise ConfigError("tls: only with --url, for a running server")
        engine, reader = self._with_options(*self._read())
        own = load_checkpoint(engine.checkpoint)
        reference = own if self.checkpoint is None else load_checkpoint(self.checkpoint)
        return Target(engine.task, own, reference, reader, engine.calibration, lambda: _open_engine(engine, reader))

    def configure(self) -> tuple[EngineConfig, TokenizerConfig]:
        """The parameters of a model for vectors, with the options in their place.

        Raises:
            ConfigError: If there is no such model or checkpoint, it is for another task, or an option is unusable.
        """
        engine, reader = self._with_options(*self._read())
        if not isinstance(reader, TokenizerConfig) or engine.task != Task.EMBED:
            raise ConfigError(f"this model is for the task {engine.task}, not for vectors")
        return engine, reader

    def _find_served(self, url: str) -> Target:
        for name in ("device", "dtype", "attention", "pooling"):
            if getattr(self, name) not in (None, Dtype.AUTO):
                raise ConfigError(f"{name}: only without --url, for an engine that runs here; a server has its own")
        if self.checkpoint is None:
            raise ConfigError("checkpoint: needed with --url: the reference and the prompts are read from it")
        checkpoint = load_checkpoint(self.checkpoint)
        task = self.task or Task(detect_task(checkpoint))
        reader = reader_config(task, {"checkpoint": self.checkpoint})
        protocol, model, tls = self.protocol.value, self.model, self.tls
        return Target(task, checkpoint, checkpoint, reader, None, lambda: _open_served(url, protocol, model, tls))

    def _with_options(self, engine: EngineConfig, reader: ReaderConfig) -> tuple[EngineConfig, ReaderConfig]:
        given: dict[str, Any] = {
            "device": self.device,
            "dtype": None if self.dtype in (None, Dtype.AUTO) else self.dtype.value,
            "attention": self.attention,
            "pooling": self.pooling,
        }
        return replace(engine, **{name: value for name, value in given.items() if value is not None}), reader

    def _read(self) -> tuple[EngineConfig, ReaderConfig]:
        from lazuli.launch.repository import find_repositories
        from lazuli.repository.catalog import configs_of, parameters_of
        from lazuli.repository.errors import RepositoryError

        try:
            values = parameters_of(self.model, find_repositories())
        except RepositoryError as error:
            return self._read_checkpoint(str(error))
        engine, reader = configs_of(values)
        if self.task not in (None, engine.task):
            raise ConfigError(f"task: {self.task}, but the model {self.model!r} is for the task {engine.task}")
        return engine, reader

    def _read_checkpoint(self, complaint: str) -> tuple[EngineConfig, ReaderConfig]:
        try:
            checkpoint = load_checkpoint(self.model)
        except ConfigError as error:
            raise ConfigError(f"{complaint}; {error}") from None
        task = self.task or Task(detect_task(checkpoint))
        return EngineConfig(checkpoint=self.model, task=task.value), reader_config(task, {"checkpoint": self.model})


def _open_engine(engine: EngineConfig, reader: ReaderConfig) -> Model:
    from lazuli.verify.engine_model import EngineModel

    return EngineModel(engine, reader)


def _open_served(url: str, protocol: str, model: str, tls: "Tls | None") -> Model:
    from lazuli.verify.server_model import ServerModel

    try:
        return ServerModel(url, protocol, model, tls)
    except ValueError as error:  # of the address
        raise ConfigError(str(error)) from None
