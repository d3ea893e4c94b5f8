"""What the clients of a soak ask for.

Knows nothing of texts or of connections.
"""

from dataclasses import dataclass, field

from lazuli_client.request import Parameters


@dataclass(frozen=True)
class Kind:
    """One kind of request.

    Attributes:
        name: What the report calls it.
        protocol: `grpc`, `http` or `stream`.
        model: Whom it asks.
        rows: Most rows of a request; there are one to so many.
        sends: `text`, `ids`, `pairs` or `mistake`: a text that is too long among others.
        output: Where the answer is.
        parameters: Of each request.
    """

    name: str
    protocol: str
    model: str
    rows: int
    sends: str = "text"
    output: str = "embedding"
    parameters: Parameters = field(default_factory=dict)


KINDS = (
    Kind("gRPC", "grpc", "embed", 4),
    Kind("HTTP", "http", "embed", 4),
    Kind("stream", "stream", "embed_stream", 8),
    Kind("gRPC, ids", "grpc", "embedding", 4, "ids"),
    Kind("gRPC, float16", "grpc", "embed", 2, output="embedding_float16", parameters={"output": "float16"}),
    Kind("stream, ids", "stream", "embedding_stream", 4, "ids"),
    Kind("gRPC, mistake", "grpc", "embed", 2, "mistake"),
)
RERANK_KINDS = (
    Kind("gRPC, pairs", "grpc", "rerank", 4, "pairs", "score"),
    Kind("HTTP, pairs", "http", "rerank", 4, "pairs", "score"),
)


def is_right_refusal(kind: Kind, count: int, message: str) -> bool:
    """Whether the error about the text that is too long names it."""
    return kind.sends == "mistake" and f"text[{count - 1}]" in message
