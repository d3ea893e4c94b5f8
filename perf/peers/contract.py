"""What every system that is measured can do, however it is reached.

An `Endpoint` goes to the processes that make the load and opens connections there; a `Peer` is what is known of the
system. Knows no kind of system.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from texts.rows import Rows


class Answer(NamedTuple):
    """Vectors, and how many tokens the system says it read; None where it does not say."""

    vectors: NDArray[np.float32]
    tokens: int | None = None


class Connection(Protocol):
    """One client's connection: requests are prepared first and sent later, so that only the sending is timed."""

    def prepare(self, rows: Rows) -> Any:
        """Make what `send` takes."""

    def send(self, prepared: Any) -> Answer:
        """Send, wait and read; raises if the answer is an error."""

    def ping(self) -> None:
        """Return once the system is reached and ready, without any work for it."""

    def close(self) -> None:
        """Close the connection."""


class Endpoint(Protocol):
    """Where the system is; can be pickled."""

    def connect(self) -> Connection:
        """A connection of its own."""


@dataclass(frozen=True)
class Peer:
    """One system that is ready, or will be once the first connection to it is made.

    Attributes:
        system: What it is, with its version.
        endpoint: How it is reached.
        protocol: How it is reached, in a word; None in process.
        dtype: Of its computation, as far as known.
        in_process: Runs in the process that makes its load, which it has for itself.
        takes_ids: Token ids may be sent to it in place of texts.
        pid: Its first process, if we started it.
    """

    system: str
    endpoint: Endpoint
    protocol: str | None = None
    dtype: str = "auto"
    in_process: bool = False
    takes_ids: bool = False
    pid: int | None = None

    @property
    def level(self) -> str:
        """As a result file has it."""
        return "engine" if self.in_process else "server"
