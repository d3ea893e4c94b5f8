"""What a load is and what came of it, as plain values that go between processes.

Knows nothing of how it is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from peers.contract import Endpoint
from texts.lengths import Lengths


@dataclass(frozen=True)
class Load:
    """What the clients of one run do.

    Attributes:
        endpoint: Whom they ask.
        lengths: Tokens of a text; None asks for health instead of embedding.
        batch: Texts of a request.
        concurrency: Clients; in an open loop, how many requests may be under way at once.
        rounds: Requests of each client; None to go by time.
        untimed: Requests of each client before those.
        seconds: Length of the run if `rounds` is None.
        settle_s: Time before those, in which the load is on but nothing counts.
        rate: Requests a second of all clients together, at times of a Poisson process, whether or not earlier ones are
            answered; None for a closed loop, in which each client asks when it has its last answer.
    """

    endpoint: Endpoint
    lengths: Lengths | None
    batch: int = 1
    concurrency: int = 1
    rounds: int | None = None
    untimed: int = 0
    seconds: float = 5.0
    settle_s: float = 0.0
    rate: float | None = None


class Span(NamedTuple):
    """One request, by the clock that all processes of a machine share.

    Attributes:
        due: When it was to be sent; in a closed loop, when it was.
        sent: When it was sent.
        answered: When its answer was read.
        tokens: Of its texts.
        error: What was answered in place of vectors.
    """

    due: float
    sent: float
    answered: float
    tokens: int
    error: str | None = None


@dataclass(frozen=True)
class Report:
    """What one process says: for each of its loads the spans of each client, and its share of a core."""

    clients: dict[int, list[list[Span]]]
    core_share: float


@dataclass(frozen=True)
class LoadResult:
    """What came of a load.

    Attributes:
        samples_ms: Time of each request, from when it was due; with `rounds` of all, else of those within the time.
        at_s: When each was due, from the start.
        tokens: Of all of these.
        wall_s: Time of the whole run.
        processes: Processes that made the load.
        busiest_core_share: Processor time of the busiest of them, as a share of one core.
        gap_ms: Median time between an answer and the same client's next request; in an open loop, between when a
            request was due and when it was sent.
        failed: Requests that were answered with an error, which only an open loop goes on after.
        errors: Some of those.
    """

    samples_ms: list[float]
    at_s: list[float]
    tokens: int
    wall_s: float
    processes: int
    busiest_core_share: float
    gap_ms: float
    failed: int = 0
    errors: tuple[str, ...] = ()


def combine(load: Load, index: int, start: float, reports: Sequence[Report]) -> LoadResult:
    """One result of what all processes say of load number `index`."""
    clients = [client for report in reports for client in report.clients.get(index, [])]
    timed = [client[load.untimed :] for client in clients]
    spans = sorted((span for client in timed for span in client), key=lambda span: span.due)
    begin = spans[0].due if load.untimed and spans else start + load.settle_s
    end = begin + load.seconds if load.rounds is None else max(span.answered for span in spans)
    counted = [span for span in spans if _counts(load, span, begin, end)]
    good = [span for span in counted if span.error is None]
    errors = [span.error for span in counted if span.error is not None]
    if load.rate is not None and good:
        end = max(end, max(span.answered for span in good))
    gaps = sorted(_gaps(load, timed))
    return LoadResult(
        samples_ms=[(span.answered - span.due) * 1e3 for span in good],
        at_s=[span.due - begin for span in good],
        tokens=sum(span.tokens for span in good),
        wall_s=end - begin,
        processes=sum(index in report.clients for report in reports),
        busiest_core_share=max(report.core_share for report in reports),
        gap_ms=gaps[len(gaps) // 2] * 1e3 if gaps else 0.0,
        failed=len(errors),
        errors=tuple(sorted(set(errors))[:3]),
    )


def merge(results: Sequence[LoadResult]) -> LoadResult:
    """Of the turns of one target, all together; the time between them is left out."""
    at_s, past_s = [], 0.0
    for result in results:
        at_s += [past_s + at for at in result.at_s]
        past_s += result.wall_s
    gaps = sorted(result.gap_ms for result in results)
    return LoadResult(
        samples_ms=[sample for result in results for sample in result.samples_ms],
        at_s=at_s,
        tokens=sum(result.tokens for result in results),
        wall_s=past_s,
        processes=max(result.processes for result in results),
        busiest_core_share=max(result.busiest_core_share for result in results),
        gap_ms=gaps[len(gaps) // 2],
        failed=sum(result.failed for result in results),
        errors=tuple(dict.fromkeys(error for result in results for error in result.errors)),
    )


def _counts(load: Load, span: Span, begin: float, end: float) -> bool:
    if load.rounds is not None:
        return True
    # A steady closed loop is seen through a window of answers; an open one is due for what fell due.
    return begin <= (span.answered if load.rate is None else span.due) <= end


def _gaps(load: Load, clients: Sequence[Sequence[Span]]) -> list[float]:
    if load.rate is not None:
        return [span.sent - span.due for client in clients for span in client]
    return [later.sent - earlier.answered for client in clients for earlier, later in pairwise(client)]
