"""The clients of one process of a soak: a thread for each kind of request, asking and comparing until it has to end.

Takes addresses, kinds and a pool; counts into shared memory, so that what is going on is known all the time. Each
connection is closed after some requests and made anew, as connections may leak too.
"""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import grpc  # type: ignore[import-untyped, unused-ignore]
import numpy as np

from clients.senders import Sender, connect
from soaking.kinds import Kind, is_right_refusal
from soaking.pool import Pool

# Of each kind: requests that were sent, that were answered, their rows, answers that were right to the bit.
SENT, ANSWERED, ROWS, EXACT = range(4)
COLUMNS = 4
_REQUESTS_OF_A_CONNECTION = 500
_KEPT_SAMPLES = 1000
_MOST_ERRORS = 3


class Worker:
    """What a process runs.

    Attributes:
        samples: Milliseconds of some requests of each kind, drawn evenly over the whole time.
        errors: The first ones of each kind; a client that has so many asks no more.
    """

    def __init__(self, addresses: Mapping[str, str], kinds: Sequence[Kind], pool: Pool, counts: Any, seed: int) -> None:
        """Get ready.

        Args:
            addresses: host:port by protocol.
            kinds: One client each.
            pool: What they ask.
            counts: Shared, [kinds × COLUMNS] int64: this process's.
            seed: Of what they draw.
        """
        self._addresses = addresses
        self._kinds = kinds
        self._pool = pool
        self._counts = np.frombuffer(counts, np.int64).reshape(len(kinds), COLUMNS)
        self._seed = seed
        self._end = threading.Event()
        self.samples: list[list[float]] = [[] for _ in kinds]
        self.errors: list[list[str]] = [[] for _ in kinds]

    def run(self, control: Connection) -> None:
        """Ask until something comes from `control`; then send samples and errors there."""
        threads = [threading.Thread(target=self._guard, args=[place], daemon=True) for place in range(len(self._kinds))]
        for thread in threads:
            thread.start()
        control.recv()
        self._end.set()
        patience = time.monotonic() + 60.0
        for thread in threads:
            thread.join(max(0.0, patience - time.monotonic()))
        control.send((self.samples, [error for each in self.errors for error in each]))

    def _guard(self, place: int) -> None:
        try:
            while not self._end.is_set() and len(self.errors[place]) < _MOST_ERRORS:
                self._ask_on_a_connection(place)
        except Exception as error:  # the last of this client; the report has it
            self.errors[place].append(f"{self._kinds[place].name}: {type(error).__name__}: {error}")

    def _ask_on_a_connection(self, place: int) -> None:
        kind, rng = self._kinds[place], np.random.default_rng([self._seed, place, time.monotonic_ns()])
        sender = connect(kind.protocol, self._addresses["http" if kind.protocol == "http" else "grpc"])
        for _ in range(_REQUESTS_OF_A_CONNECTION):
            if self._end.is_set() or len(self.errors[place]) >= _MOST_ERRORS:
                break
            rows = rng.choice(len(self._pool.texts), size=rng.integers(1, kind.rows + 1), replace=False)
            self._ask(place, sender, rows)
        sender.close()

    def _ask(self, place: int, sender: Sender, rows: np.ndarray) -> None:
        kind, count = self._kinds[place], self._counts[place]
        prepared = sender.prepare(self._pool.request(kind, rows))
        count[SENT] += 1
        started = time.perf_counter()
        try:
            outputs = sender.send(prepared)
        except grpc.RpcError as error:
            if not is_right_refusal(kind, len(rows), error.details() or ""):
                raise
            exact = True
        else:
            exact = self._compare(place, rows, outputs)
        self._keep(place, 1e3 * (time.perf_counter() - started))
        count[ANSWERED] += 1
        count[ROWS] += len(rows)
        count[EXACT] += exact

    def _compare(self, place: int, rows: np.ndarray, outputs: Any) -> bool:
        """As the pool does; an answer that is wrong is an error of which others are not the end."""
        try:
            return self._pool.compare(self._kinds[place], rows, outputs)
        except (ValueError, KeyError) as error:
            self.errors[place].append(f"{self._kinds[place].name}: {error}")
            return False

    def _keep(self, place: int, sample: float) -> None:
        """Each of all samples so far is kept with the same chance."""
        samples, number = self.samples[place], int(self._counts[place, ANSWERED])
        if len(samples) < _KEPT_SAMPLES:
            samples.append(sample)
        elif (chosen := random.randrange(number + 1)) < _KEPT_SAMPLES:
            samples[chosen] = sample


def work(*arguments: Any, control: Connection) -> None:
    """The main function of such a process."""
    Worker(*arguments).run(control)
