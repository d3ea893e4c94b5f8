"""The client of Lazuli: texts in, numpy vectors out, over gRPC or HTTP, synchronous or asyncio.

Needs tritonclient and numpy only; the `lazuli` command adds pyarrow, rich and typer.
"""

from lazuli_client.aio import AsyncLazuliClient
from lazuli_client.client import LazuliClient
from lazuli_client.embeddings import Embeddings, Part
from lazuli_client.errors import (
    ClosedError,
    ConnectionFailedError,
    DeadlineError,
    InputTypeError,
    InvalidInputError,
    LazuliError,
    ModelNotFoundError,
    ServerError,
    UnavailableError,
    UnsupportedError,
)
from lazuli_client.health import Health
from lazuli_client.options import EmbedOptions

__all__ = [
    "AsyncLazuliClient",
    "ClosedError",
    "ConnectionFailedError",
    "DeadlineError",
    "EmbedOptions",
    "Embeddings",
    "Health",
    "InputTypeError",
    "InvalidInputError",
    "LazuliClient",
    "LazuliError",
    "ModelNotFoundError",
    "Part",
    "ServerError",
    "UnavailableError",
    "UnsupportedError",
]
