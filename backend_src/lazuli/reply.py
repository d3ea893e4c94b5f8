"""The threads that wait for results and send answers.

Takes lazy results with the batch that they belong to, and delivers each vector to its request. Knows nothing of Triton.

One pool does both jobs. Sending is a blocking round trip to the server process, so the thread that waited for a batch
sends only one of its answers (often there is just one, and no hand-over is needed) and leaves the rest to the others.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import Any, Protocol

import numpy as np

from lazuli.errors import DeviceError, LazuliError, ReplyError
from lazuli.metrics.recorder import EngineRecorder
from lazuli.request import Request, Sequence

_log = logging.getLogger(__name__)
_Task = Callable[[], None]


class LazyRows(Protocol):
    """What was computed of the sequences of a batch, or will be."""

    def result(self) -> Any:
        """Wait, and return what can be indexed by places in the batch. Called exactly once."""


# A request with its rows, ascending, and their places in the batch.
_Group = tuple[Request, np.ndarray, np.ndarray]


class ReplyPool:
    """Daemon threads that work off one queue."""

    def __init__(self, num_threads: int, recorder: EngineRecorder | None = None) -> None:
        """Start `num_threads` threads; there must be more of them than batches in flight. `recorder` gets times."""
        self._recorded = (recorder or EngineRecorder(enabled=False)).replies
        self._tasks: queue.Queue[_Task | None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._work, name=f"lazuli-reply-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def expect(self, result: LazyRows, sequences: SequenceOf[Sequence], on_arrival: Callable[[], None]) -> None:
        """Wait for a batch in the background and deliver its vectors.

        Args:
            result: [B, D], or what another program computes.
            sequences: The B sequences in the same order.
            on_arrival: Called once the device is done with the batch, before anything is sent.
        """
        self._tasks.put(lambda: self.receive(result, sequences, on_arrival))

    def receive(self, result: LazyRows, sequences: SequenceOf[Sequence], on_arrival: Callable[[], None]) -> None:
        """Wait for a batch in the calling thread, which delivers to the first of its requests.

        While the device works, that answer is prepared; those of the others would keep the interpreter from whoever
        queues the next batch.

        Args:
            result: As for `expect`.
            sequences: Likewise.
            on_arrival: Likewise.
        """
        groups = _by_request(sequences)
        _prepare(groups[0][0])
        try:
            vectors = result.result()
        except Exception as error:  # whatever it is, a request without an answer would hang for ever
            for request, _, _ in groups:
                self.fail(request, DeviceError(f"the device failed: {error}"))
            return
        finally:
            on_arrival()
        deliver = partial(self._deliver, time.monotonic())
        tasks = [partial(deliver, request, rows, vectors[places]) for request, rows, places in groups]
        for task in tasks[1:]:
            self._tasks.put(task)
        tasks[0]()

    def _deliver(self, arrived: float, request: Request, rows: np.ndarray, vectors: Any) -> None:
        try:
            request.deliver(rows, vectors)
        except Exception as error:  # a request without an answer would hang for ever
            _log.exception("an answer could not be made")
            request.fail(ReplyError(f"the answer could not be made: {error}"))
        self._recorded.append(time.monotonic() - arrived)

    def fail(self, request: Request, error: LazuliError) -> None:
        """Fail a request in the background."""
        self._tasks.put(lambda: request.fail(error))

    def close(self) -> None:
        """Finish all tasks, also those that tasks add, and end the threads."""
        self._tasks.join()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            task = self._tasks.get()
            try:
                if task is None:
                    return
                task()
            except Exception:
                # Nothing can be told to the client any more; the thread must live on for the others.
                _log.exception("an answer could not be sent")
            finally:
                self._tasks.task_done()


def _prepare(request: Request) -> None:
    try:
        request.prepare()
    except Exception:  # the answer can do without, but not without what follows
        _log.exception("an answer could not be prepared")


def _by_request(sequences: SequenceOf[Sequence]) -> list[_Group]:
    groups: dict[int, list[tuple[int, int]]] = {}
    for place, sequence in enumerate(sequences):
        groups.setdefault(id(sequence.request), []).append((sequence.row, place))
    parts = []
    for members in groups.values():
        rows, places = np.array(sorted(members)).T
        parts.append((sequences[members[0][1]].request, rows.astype(np.int32), places))
    return parts
