"""A closed loop of clients: each sends its next request when it has the answer to its last.

Takes a `Load`; returns the time of every request. The clients are threads, few to a process, so that Python's lock is
not what is measured; how busy the busiest process was is returned too. Knows nothing of suites or files.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, repeat
from multiprocessing.connection import Connection
from typing import Any

from senders import Sender, connect, embed_request
from text_source import TextSource

_GRACE_S = 0.05


@dataclass(frozen=True)
class Load:
    """What every client does.

    Attributes:
        protocol: `grpc` or `http`.
        address: host:port.
        length: Tokens of a text; 0 asks for health instead of embedding.
        batch: Texts of a request.
        concurrency: Clients.
        rounds: Requests of each client; None to go by time.
        seconds: Length of the run if `rounds` is None.
    """

    protocol: str
    address: str
    length: int
    batch: int = 1
    concurrency: int = 1
    rounds: int | None = None
    seconds: float = 5.0


@dataclass(frozen=True)
class LoadResult:
    """What came of it.

    Attributes:
        samples_ms: Time of each request: with `rounds` of all, else of those answered before the time was up.
        wall_s: Time of the whole run.
        processes: Processes that made the load.
        busiest_core_share: Processor time of the busiest of them, as a share of one core.
        gap_ms: Median time between an answer and the same client's next request.
    """

    samples_ms: list[float]
    wall_s: float
    processes: int
    busiest_core_share: float
    gap_ms: float


@dataclass(frozen=True)
class _Report:
    spans: list[tuple[float, float]]
    gaps: list[float]
    core_share: float


class LoadGenerator:
    """Keeps its processes between runs; use it as a context manager."""

    def __init__(self, words: Sequence[str], num_special: int, processes: int, clients_a_process: int = 4) -> None:
        """Start the processes.

        Args:
            words: For `TextSource`.
            num_special: For `TextSource`.
            processes: Most processes of a run.
            clients_a_process: Clients of one process, until there are no more processes.
        """
        self._clients_a_process = clients_a_process
        # Not forked: gRPC's threads do not survive that.
        context = multiprocessing.get_context("spawn")
        self._workers = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            arguments = (theirs, list(words), num_special, number)
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            self._workers.append((process, ours))

    def __enter__(self) -> "LoadGenerator":
        return self

    def __exit__(self, *error: object) -> None:
        for process, pipe in self._workers:
            pipe.close()
            process.join(timeout=5)
            process.kill()

    def run(self, load: Load) -> LoadResult:
        """Make the load.

        Raises:
            RuntimeError: A request failed.
        """
        shares = spread(load.concurrency, self._clients_a_process, len(self._workers))
        pipes = [pipe for _, pipe in self._workers[: len(shares)]]
        for pipe, clients in zip(pipes, shares, strict=True):
            pipe.send((load, clients))
        for pipe in pipes:
            _receive(pipe)  # connected
        start = time.perf_counter() + _GRACE_S  # one clock for all processes of a machine
        for pipe in pipes:
            pipe.send(start)
        return _combine(load, start, [_receive(pipe) for pipe in pipes])


def spread(clients: int, clients_a_process: int, most_processes: int) -> list[int]:
    """How many clients each process has."""
    processes = min(-(-clients // clients_a_process), most_processes)
    return [clients // processes + (number < clients % processes) for number in range(processes)]


def _receive(pipe: Connection) -> Any:
    answer = pipe.recv()
    if isinstance(answer, Exception):
        raise RuntimeError(f"the load failed: {answer!r}") from answer
    return answer


def _combine(load: Load, start: float, reports: list[_Report]) -> LoadResult:
    spans = [span for report in reports for span in report.spans]
    end = start + load.seconds if load.rounds is None else max(last for _, last in spans)
    counted = [(last - first) * 1e3 for first, last in spans if last <= end]
    if not counted:
        raise RuntimeError(f"nothing was answered within {load.seconds} s")
    gaps = sorted(gap for report in reports for gap in report.gaps)
    return LoadResult(
        samples_ms=counted,
        wall_s=end - start,
        processes=len(reports),
        busiest_core_share=max(report.core_share for report in reports),
        gap_ms=gaps[len(gaps) // 2] * 1e3 if gaps else 0.0,
    )


def _work(pipe: Connection, words: list[str], num_special: int, number: int) -> None:
    """The life of one process."""
    serial = 0
    while True:
        try:
            load, clients = pipe.recv()
        except EOFError:
            return
        # No text of one run, or of one client, comes again in another.
        seeds = [(number * 1_000 + client) * 1_000 + serial for client in range(clients)]
        serial += 1
        sources = [TextSource(words, num_special, seed) for seed in seeds]
        try:
            pipe.send(_run_clients(load, sources, pipe))
        except Exception as error:  # goes to the process that asked
            pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _run_clients(load: Load, sources: list[TextSource], pipe: Connection) -> _Report:
    with ExitStack() as stack:
        senders = [stack.enter_context(closing(connect(load.protocol, load.address))) for _ in sources]
        for sender in senders:
            sender.ping()
        clients = list(map(_Client, repeat(load), sources, senders))
        pipe.send("connected")
        start, cpu_s = pipe.recv(), time.process_time()
        with ThreadPoolExecutor(len(clients)) as threads:
            spans = list(threads.map(_Client.run, clients, repeat(start)))
    share = (time.process_time() - cpu_s) / (time.perf_counter() - start)
    gaps = [later[0] - earlier[1] for client in spans for earlier, later in pairwise(client)]
    return _Report([span for client in spans for span in client], gaps, share)


class _Client:
    """One client; its next request is always made before the clock runs."""

    def __init__(self, load: Load, source: TextSource, sender: Sender) -> None:
        self._load = load
        self._source = source
        self._sender = sender
        self._next = self._make_call()

    def run(self, start: float) -> list[tuple[float, float]]:
        """From `start` on; returns when each request was sent and when it was answered."""
        time.sleep(max(0.0, start - time.perf_counter()))
        spans: list[tuple[float, float]] = []
        while self._goes_on(len(spans), start):
            first = time.perf_counter()
            self._next()
            spans.append((first, time.perf_counter()))
            self._next = self._make_call()
        return spans

    def _goes_on(self, done: int, start: float) -> bool:
        if self._load.rounds is not None:
            return done < self._load.rounds
        return time.perf_counter() < start + self._load.seconds

    def _make_call(self) -> Callable[[], None]:
        if self._load.length == 0:
            return self._sender.ping
        prepared = self._sender.prepare(embed_request(self._source.texts(self._load.batch, self._load.length)))
        return partial(self._embed, prepared)

    def _embed(self, prepared: Any) -> None:
        rows = len(self._sender.send(prepared)["embedding"])
        if rows != self._load.batch:
            raise RuntimeError(f"{rows} vectors for {self._load.batch} texts")
