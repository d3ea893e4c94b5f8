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
    TlsError,
    UnavailableError,
    UnsupportedError,
)
from lazuli_client.health import Health
from lazuli_client.labels import Labels
from lazuli_client.options import EmbedOptions
from lazuli_client.ranges import Ranges
from lazuli_client.ranking import Ranked, Ranking
from lazuli_client.task_options import ClassifyOptions, RerankOptions
from lazuli_client.tls import Tls
from lazuli_client.token_outputs import SparseVector, max_sim

__all__ = [
    "AsyncLazuliClient",
    "ClassifyOptions",
    "ClosedError",
    "ConnectionFailedError",
    "DeadlineError",
    "EmbedOptions",
    "Embeddings",
    "Health",
    "InputTypeError",
    "InvalidInputError",
    "Labels",
    "LazuliClient",
    "LazuliError",
    "ModelNotFoundError",
    "Part",
    "Ranges",
    "Ranked",
    "Ranking",
    "RerankOptions",
    "ServerError",
    "SparseVector",
    "Tls",
    "TlsError",
    "UnavailableError",
    "UnsupportedError",
    "max_sim",
]
