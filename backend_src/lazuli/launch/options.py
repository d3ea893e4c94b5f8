"""The options of `lazuli serve`, parsed once.

Takes plain values and checks those that need no look at the machine. Does not know where things are on it.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from lazuli.launch.errors import LaunchError


class Door(StrEnum):
    """Which of the two ways into the engine is loaded."""

    UNARY = "unary"
    STREAM = "stream"
    BOTH = "both"


class Dtype(StrEnum):
    """Arithmetic of the model."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class LogLevel(StrEnum):
    """What of the server's log reaches the terminal; the log file has info and above in any case."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    VERBOSE = "verbose"


@dataclass(frozen=True)
class ServeOptions:
    """Everything that `lazuli serve` can be told.

    A value of None leaves the matter to the environment (`LAZULI_...`) or to the model repository.

    Attributes:
        model_repositories: Folders, or `built-in`; empty for this project's own and the user's.
        models: Names of the models to load; empty for all.
        checkpoint: Of the built-in model.
        rerank_checkpoint: Of a model `rerank` beside it.
        exit_timeout_s: Seconds that requests in flight get to finish after a stop was asked for.
        start_timeout_s: Seconds until every model must have answered a real inference.
        probe_interval_s: Seconds between two rounds of real inferences that watch the running server.
        probe_timeout_s: Seconds for such an inference; only a server that is idle meanwhile counts as stuck.
        hang_timeout_s: Seconds without one answered request after which even a busy server is restarted.
        max_restarts: Restarts within ten minutes; one more failure ends the command.
        health_port: Where to say whether the server lives and is ready; None for nowhere.
        extra_flags: Passed to tritonserver as they are, after our own.
        environment: Added to the environment of the server, over everything else.
    """

    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    host: str = "127.0.0.1"
    model_repositories: tuple[str | Path, ...] = ()
    models: tuple[str, ...] = ()
    checkpoint: str | None = None
    rerank_checkpoint: str | None = None
    device: str | None = None
    dtype: Dtype | None = None
    max_seq_length: int | None = None
    threads: int | None = None
    door: Door = Door.BOTH
    admin_key: str = field(default_factory=lambda: secrets.token_hex(16))
    log_level: LogLevel = LogLevel.WARNING
    tritonserver: Path | None = None
    auto_complete_config: bool = False
    exit_timeout_s: int = 5
    start_timeout_s: float = 300.0
    probe_interval_s: float = 5.0
    probe_timeout_s: float = 5.0
    hang_timeout_s: float = 300.0
    max_restarts: int = 10
    health_port: int | None = None
    extra_flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.ports.values())) < len(self.ports):
            raise LaunchError(f"the ports must differ, not {', '.join(map(str, self.ports.values()))}")
        if self.device is not None and not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise LaunchError(f"--device {self.device!r} is not auto, cpu, cuda or cuda:N")
        if self.checkpoint is not None and not self.checkpoint.strip():
            raise LaunchError("--checkpoint is empty; leave it out for the built-in model")
        if self.rerank_checkpoint is not None and not self.rerank_checkpoint.strip():
            raise LaunchError("--rerank-checkpoint is empty; leave it out for no model that reranks")
        # The server's flag separates with these characters.
        if not re.fullmatch(r"[\w.~-]+", self.admin_key):
            raise LaunchError("--admin-key may hold letters, digits and . ~ _ - only")

    @property
    def ports(self) -> dict[str, int]:
        """The ports by the name of their option."""
        ports = {
            "--http-port": self.http_port,
            "--grpc-port": self.grpc_port,
            "--metrics-port": self.metrics_port,
        }
        return ports if self.health_port is None else {**ports, "--health-port": self.health_port}

    def model_environment(self) -> dict[str, str]:
        """The environment variables that `config.pbtxt` files substitute, for the options given."""
        values = {
            "LAZULI_CHECKPOINT": self.checkpoint,
            "LAZULI_DEVICE": self.device,
            "LAZULI_DTYPE": self.dtype,
            "LAZULI_MAX_SEQ_LENGTH": self.max_seq_length,
            "LAZULI_THREADS": self.threads,
        }
        return {name: str(value) for name, value in values.items() if value is not None}
