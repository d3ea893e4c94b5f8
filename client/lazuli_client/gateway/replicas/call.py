"""What the servers must know of a request beside its tensors."""

from dataclasses import dataclass, field

from lazuli_client.gateway.timings import Timings


@dataclass(slots=True)
class Call:
    """One request of an application.

    Attributes:
        request_id: Its id, also in the logs of the servers.
        deadline: Time of the event loop at which its answer is of no more use.
        has_deadline: Whether the application gave it; then the engine is told, too.
        context: The trace that it belongs to, `traceparent` and `tracestate`; empty if it came without one.
        timings: Where the time went.
        rows: Texts or pairs.
        tokens: Tokens that the model read.
        is_bulk: Whether it is large, so that others go first.
    """

    request_id: str
    deadline: float
    has_deadline: bool = False
    context: dict[str, str] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)
    rows: int = 0
    tokens: int = 0
    is_bulk: bool = False
