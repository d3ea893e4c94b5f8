"""The clients of one process: threads that ask in a closed loop, or at times that are set beforehand.

Takes a `Load` and connections; returns spans. Every request is made before its clock runs.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from clients.load import Load, Span
from peers.contract import Connection
from texts.rows import RowSource


class Clients(NamedTuple):
    """Those of one load; `rate` is this process's share of an open loop's."""

    load: Load
    sources: list[RowSource]
    connections: list[Connection]
    rate: float | None
    seed: int


class _Call(NamedTuple):
    send: Callable[[], None]
    tokens: int


def run_clients(groups: Sequence[Clients], wait_for_start: Callable[[], float]) -> list[list[list[Span]]]:
    """Run all clients of all loads at once.

    Args:
        groups: The clients of each load.
        wait_for_start: Called once everything is made; returns when to start.

    Returns:
        For each load the spans of each client.
    """
    runs = [make_run for group in groups for make_run in _prepare(group)]
    start = wait_for_start()
    with ThreadPoolExecutor(len(runs)) as threads:
        spans = iter(list(threads.map(lambda run: run(start), runs)))
    return [[next(spans) for _ in group.connections] for group in groups]


def _prepare(group: Clients) -> list[Callable[[float], list[Span]]]:
    pairs = list(zip(group.sources, group.connections, strict=True))
    if group.rate is None:
        return [_ClosedLoop(group.load, source, connection).run for source, connection in pairs]
    arrivals = Arrivals(group.load.settle_s + group.load.seconds, group.rate, group.seed)
    return [_OpenLoop(group.load, source, connection, arrivals).run for source, connection in pairs]


class Arrivals:
    """Times of a Poisson process, handed out in order to whoever is free."""

    def __init__(self, seconds: float, rate: float, seed: int) -> None:
        """Draw the times, from 0 on, of requests of `rate` a second."""
        rng = np.random.default_rng([seed, 2])
        # Given their number, the times of a Poisson process are spread evenly.
        self._times = iter(np.sort(rng.uniform(0, seconds, size=rng.poisson(rate * seconds))).tolist())
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[float]:
        return self

    def __next__(self) -> float:
        with self._lock:
            return float(next(self._times))


class _Loop:
    """What both kinds of clients do."""

    def __init__(self, load: Load, source: RowSource, connection: Connection) -> None:
        self._load = load
        self._source = source
        self._connection = connection

    def _make_call(self) -> _Call:
        if self._load.lengths is None:
            return _Call(self._connection.ping, 0)
        rows = self._source.rows(self._load.batch, self._load.lengths)
        prepared = self._connection.prepare(rows)

        def send() -> None:
            count = len(self._connection.send(prepared).vectors)
            if count != self._load.batch:
                raise RuntimeError(f"{count} vectors for {self._load.batch} texts")

        return _Call(send, rows.tokens)


class _ClosedLoop(_Loop):
    """Sends its next request when it has the answer to its last."""

    def __init__(self, load: Load, source: RowSource, connection: Connection) -> None:
        super().__init__(load, source, connection)
        self._next = self._make_call()

    def run(self, start: float) -> list[Span]:
        time.sleep(max(0.0, start - time.perf_counter()))
        spans: list[Span] = []
        while self._goes_on(len(spans), start):
            sent = time.perf_counter()
            self._next.send()
            spans.append(Span(sent, sent, time.perf_counter(), self._next.tokens))
            self._next = self._make_call()
        return spans

    def _goes_on(self, done: int, start: float) -> bool:
        if self._load.rounds is not None:
            return done < self._load.untimed + self._load.rounds
        return time.perf_counter() < start + self._load.settle_s + self._load.seconds


class _OpenLoop(_Loop):
    """Takes the next of the times that all share."""

    def __init__(self, load: Load, source: RowSource, connection: Connection, arrivals: Arrivals) -> None:
        super().__init__(load, source, connection)
        self._arrivals = arrivals

    def run(self, start: float) -> list[Span]:
        spans = []
        for time_s in self._arrivals:
            call = self._make_call()
            due = start + time_s
            time.sleep(max(0.0, due - time.perf_counter()))
            sent, error = time.perf_counter(), None
            try:
                call.send()
            except Exception as failure:  # one that the server refuses; the others still come
                error = f"{type(failure).__name__}: {failure}"
            spans.append(Span(due, sent, time.perf_counter(), call.tokens, error))
        return spans
