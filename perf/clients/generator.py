"""Processes that make the load of many clients.

Takes a `Load`; returns the time of every request. The clients are threads, few to a process, so that Python's lock is
not what is measured; how busy the busiest process was is returned too. A system that runs in process is loaded by the
one process of a generator of its own. Knows nothing of suites or files.
"""

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from clients.load import Load, LoadResult, Report, combine
from clients.loops import Clients, run_clients
from peers.contract import Answer, Endpoint
from peers.local import close_models
from texts.rows import Rows, RowSpec

_GRACE_S = 0.05
_END_TIMEOUT_S = 30.0


class _Share(NamedTuple):
    """What one process does of one load."""

    number: int
    load: Load
    clients: int
    processes: int


class _Question(NamedTuple):
    endpoint: Endpoint
    rows: Rows


class LoadGenerator:
    """Keeps its processes between runs; use it as a context manager."""

    def __init__(self, rows: RowSpec, processes: int, clients_a_process: int = 4, *, may_fork: bool = False) -> None:
        """Start the processes.

        Args:
            rows: What the requests carry.
            processes: Most processes of a run.
            clients_a_process: Clients of one process, until there are no more processes.
            may_fork: Whether what runs in them may start processes of its own.
        """
        self._clients_a_process = clients_a_process
        # Not forked: gRPC's threads do not survive that.
        context = multiprocessing.get_context("spawn")
        self._workers: list[tuple[BaseProcess, Pipe]] = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, rows, number), daemon=not may_fork)
            process.start()
            theirs.close()  # or else the end of the process would not be seen
            self._workers.append((process, ours))

    def __enter__(self) -> "LoadGenerator":
        return self

    def __exit__(self, *error: object) -> None:
        for _, pipe in self._workers:
            pipe.close()
        for process, _ in self._workers:
            process.join(timeout=_END_TIMEOUT_S)
            process.kill()

    @property
    def pid(self) -> int | None:
        """The first process."""
        return self._workers[0][0].pid

    def run(self, load: Load) -> LoadResult:
        """Make one load.

        Raises:
            RuntimeError: A request of a closed loop failed, or nothing was answered.
        """
        (result,) = self.run_together([load])
        if not result.samples_ms:
            raise RuntimeError(f"nothing was answered within {load.seconds:g} s; {'; '.join(result.errors)}")
        return result

    def run_together(self, loads: Sequence[Load]) -> list[LoadResult]:
        """Make several loads at once, on processes of their own as far as there are enough.

        Raises:
            RuntimeError: A request of a closed loop failed.
        """
        shares = self._share_out(loads)
        pipes = [pipe for (_, pipe), share in zip(self._workers, shares, strict=True) if share]
        for pipe, share in zip(pipes, filter(None, shares), strict=True):
            pipe.send(share)
        try:
            _receive_all(pipes)  # connected
        except RuntimeError:
            _abandon(pipes)
            raise
        start = time.perf_counter() + _GRACE_S  # one clock for all processes of a machine
        for pipe in pipes:
            pipe.send(start)
        reports = _receive_all(pipes)
        return [combine(load, index, start, reports) for index, load in enumerate(loads)]

    def ask(self, endpoint: Endpoint, rows: Rows) -> Answer:
        """One request.

        Raises:
            RuntimeError: It failed.
        """
        pipe = self._workers[0][1]
        pipe.send(_Question(endpoint, rows))
        answer: Answer = _receive_all([pipe])[0]
        return answer

    def _share_out(self, loads: Sequence[Load]) -> list[list[_Share]]:
        shares: list[list[_Share]] = [[] for _ in self._workers]
        place = 0
        for number, load in enumerate(loads):
            counts = spread(load.concurrency, self._clients_a_process, len(self._workers))
            for clients in counts:
                shares[place % len(shares)].append(_Share(number, load, clients, len(counts)))
                place += 1
        return shares


def spread(clients: int, clients_a_process: int, most_processes: int) -> list[int]:
    """How many clients each process has."""
    processes = min(-(-clients // clients_a_process), most_processes)
    return [clients // processes + (number < clients % processes) for number in range(processes)]


def _receive_all(pipes: Sequence[Pipe]) -> list[Any]:
    """What each says; an error of any is raised when all have said something."""
    answers = []
    for pipe in pipes:
        try:
            answers.append(pipe.recv())
        except EOFError:
            answers.append(RuntimeError("a process of the load generator ended"))
    for answer in answers:
        if isinstance(answer, Exception):
            raise RuntimeError(f"the load failed: {answer}") from answer
    return answers


def _abandon(pipes: Sequence[Pipe]) -> None:
    """Let those that are connected go back to waiting; those that failed do so already and ignore it."""
    for pipe in pipes:
        with suppress(OSError):  # one that ended
            pipe.send(None)


def _work(pipe: Pipe, spec: RowSpec, number: int) -> None:
    """The life of one process."""
    serial = 0
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            close_models()
            return
        if order is None:
            continue
        try:
            if isinstance(order, _Question):
                pipe.send(_ask(order))
            else:
                report = _run_shares(order, spec, number * 1_000_000_000 + serial, pipe)
                serial += 1
                if report is not None:
                    pipe.send(report)
        except Exception as error:  # goes to the process that asked
            pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _ask(question: _Question) -> Answer:
    with closing(question.endpoint.connect()) as connection:
        return connection.send(connection.prepare(question.rows))


def _run_shares(shares: list[_Share], spec: RowSpec, seed: int, pipe: Pipe) -> Report | None:
    with ExitStack() as stack:
        groups = [_connect(share, spec, seed, stack) for share in shares]
        start = cpu_s = 0.0

        def wait_for_start() -> float:
            nonlocal start, cpu_s
            pipe.send("connected")
            order: float | None = pipe.recv()
            if order is None:
                raise _AbandonedError
            start, cpu_s = order, time.process_time()
            return order

        try:
            spans = run_clients(groups, wait_for_start)
        except _AbandonedError:
            return None
        core_share = (time.process_time() - cpu_s) / (time.perf_counter() - start)
    return Report({share.number: clients for share, clients in zip(shares, spans, strict=True)}, core_share)


class _AbandonedError(Exception):
    """Another process could not connect."""


def _connect(share: _Share, spec: RowSpec, seed: int, stack: ExitStack) -> Clients:
    connections = [stack.enter_context(closing(share.load.endpoint.connect())) for _ in range(share.clients)]
    for connection in connections:
        connection.ping()
    # No text of one run, or of one client, comes again in another.
    seeds = [seed + (share.number * 1_000 + client) * 100_000 for client in range(share.clients)]
    rate = share.load.rate / share.processes if share.load.rate is not None else None
    return Clients(share.load, [spec.open(each) for each in seeds], connections, rate, seeds[0])
