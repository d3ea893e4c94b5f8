"""Where hot paths leave what happened, for another thread to count.

Takes plain tuples from any thread, returns them once. To leave one is an `append` of a deque, which needs no lock and
takes a fraction of a microsecond; all counting is left to whoever drains it.
"""

import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from lazuli.errors import LazuliError, RequestCancelledError

OK = "ok"
UNEXPECTED = "Unexpected"
_OWN_NAMES: dict[type[BaseException], str] = {RequestCancelledError: "cancelled"}  # like `ok`, no fault of the server
# More than come between two drains, and a bound on memory should nobody drain.
_MOST = 1 << 18
# Events that are counted within a tenth of a millisecond, and the pause after them.
_SOME = 32
_PAUSE_S = 0.0002
_Event = TypeVar("_Event")


class Step(NamedTuple):
    """A batch whose result arrived. Left as a plain tuple of these.

    Attributes:
        started: Of the monotonic clock, when it was to be queued on the device.
        arrived: When its result was there.
        sequences: Its sequences.
        tokens: Their tokens, without padding.
    """

    started: float
    arrived: float
    sequences: int
    tokens: int


class Ended(NamedTuple):
    """A request that was answered. Left as a plain tuple of these.

    Attributes:
        outcome: `ok`, or what `outcome_of` says of its error.
        rows: Its texts; 0 if it could not be read.
        tokens: Of all its texts.
        seconds: From its arrival until its last answer was handed over.
    """

    outcome: str
    rows: int
    tokens: int
    seconds: float


class Tokenized(NamedTuple):
    """A request that a tokenizer answered. Left as a plain tuple of these.

    Attributes:
        outcome: As of `Ended`.
        rows: Its texts.
        truncated: How many of them were cut.
        seconds: What it took.
    """

    outcome: str
    rows: int
    truncated: int
    seconds: float


class EngineRecorder:
    """What happened in an engine.

    Attributes:
        steps: Fields of `Step`.
        replies: Seconds from the arrival of a result until the answer of one of its requests was handed over.
        requests: Fields of `Ended`.
        traces: Whether requests may have a trace that wants to know of steps, whoever else does.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        """Make an empty one; if it is not enabled, it keeps nothing."""
        most = _MOST if enabled else 0
        self.enabled = enabled
        self.traces = False
        self.steps: deque[tuple[float, float, int, int]] = deque(maxlen=most)
        self.replies: deque[float] = deque(maxlen=most)
        self.requests: deque[tuple[str, int, int, float]] = deque(maxlen=most)


class TokenizerRecorder:
    """What happened in a tokenizer model.

    Attributes:
        requests: Fields of `Tokenized`.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        """As `EngineRecorder`."""
        self.enabled = enabled
        self.requests: deque[tuple[str, int, int, float]] = deque(maxlen=_MOST if enabled else 0)


def drain(events: "deque[_Event]") -> Iterator[list[_Event]]:
    """Take what is there, some at a time; others may append meanwhile.

    Python lets a thread that counts keep the interpreter for 5 ms, which requests would wait for; so there are pauses.
    """
    left = len(events)
    while left:
        some = [events.popleft() for _ in range(min(left, _SOME))]
        left -= len(some)
        yield some
        if left:
            time.sleep(_PAUSE_S)


def outcome_of(error: BaseException) -> str:
    """The name of the class of an error of ours. Never its message, which may hold what the caller sent."""
    return _name_of(type(error)) if isinstance(error, LazuliError) else UNEXPECTED


def all_outcomes() -> list[str]:
    """Every outcome that there may be, so that counters of errors are there at 0 before the first."""
    names, kinds = [OK, UNEXPECTED, LazuliError.__name__], list(LazuliError.__subclasses__())
    while kinds:
        kind = kinds.pop()
        names.append(_name_of(kind))
        kinds += kind.__subclasses__()
    return sorted(names)


def _name_of(kind: type[LazuliError]) -> str:
    return _OWN_NAMES.get(kind, kind.__name__)
