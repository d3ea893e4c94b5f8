"""Systems that run in the process which makes their load: loaded once there, used by all of its clients.

Takes what loads a model; returns connections to it. Knows nothing of any model.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from peers.contract import Answer
from texts.rows import Rows


class LocalModel(Protocol):
    """Text in, vectors out, in this process."""

    def embed(self, rows: Rows) -> Answer:
        """May be called by several threads at once."""

    def close(self) -> None:
        """Give up what it holds."""


@dataclass(frozen=True)
class LocalEndpoint:
    """How a model is loaded; equal ones are one model.

    Attributes:
        load: A function of a module, and so known to the process that loads.
        arguments: Of that function.
    """

    load: Callable[..., LocalModel]
    arguments: tuple[object, ...] = ()

    def connect(self) -> "LocalConnection":
        """Load the model unless this process has it."""
        with _lock:
            if self not in _models:
                _models[self] = self.load(*self.arguments)
            return LocalConnection(_models[self])


class LocalConnection:
    """One client of a model."""

    def __init__(self, model: LocalModel) -> None:
        """Wrap it."""
        self._model = model

    def prepare(self, rows: Rows) -> Rows:
        """Nothing is to be made: tokenising is the model's work, as it is a server's."""
        return rows

    def send(self, prepared: Rows) -> Answer:
        """Call the model."""
        return self._model.embed(prepared)

    def ping(self) -> None:
        """It is loaded."""

    def close(self) -> None:
        """The model stays for the next client."""


def close_models() -> None:
    """At the end of a process."""
    with _lock:
        while _models:
            _models.popitem()[1].close()


_models: dict[LocalEndpoint, LocalModel] = {}
_lock = threading.Lock()
