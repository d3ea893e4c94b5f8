"""The threads that keep the device busy, and use the time when it is not.

Takes sequences from the scheduler, packs them and steps the engine; the results go to the reply pool. Knows nothing of
Triton. It never waits for a result: at most `max_in_flight` batches are on their way, and while they are, requests
gather in the scheduler, so batches grow with the load by themselves.
"""

import logging
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from lazuli.batch import RaggedBatch
from lazuli.errors import DeviceError, ShuttingDownError
from lazuli.lazy_tensor import LazyTensor
from lazuli.metrics.recorder import EngineRecorder, Step
from lazuli.reply import LazyRows, ReplyPool
from lazuli.request import VECTORS, Request, Sequence
from lazuli.scheduler import Scheduler
from lazuli.tracing.request_trace import note_step

_log = logging.getLogger(__name__)
_Take = Callable[[LazyRows, SequenceOf[Sequence], Callable[[], None]], None]
# How often to look whether something that can wait may be done: while there is some, and while there is none. After the
# longer time without a request, another one is unlikely to come soon.
_GAP_S = 0.02
_QUIET_S = 1.0


class Stepper(Protocol):
    """What the runner needs of an engine."""

    def step(self, batch: RaggedBatch) -> LazyTensor:
        """Queue one forward pass; the result is [B, D] float32."""

    def run(self, program: str, sequences: SequenceOf[Sequence]) -> tuple[LazyRows, SequenceOf[Sequence]]:
        """Queue a pass of another program; returns its result and the sequences in its order."""

    def use_idle_time(self, *, quiet: bool) -> bool:
        """Do a piece of what can wait, beside steps; `quiet`: no request came for a while. Whether there is more."""


class Runner:
    """Runs batches until the scheduler is closed and drained."""

    def __init__(
        self,
        engine: Stepper,
        scheduler: Scheduler,
        replies: ReplyPool,
        max_in_flight: int,
        prepare: Callable[[], None] = lambda: None,
        recorder: EngineRecorder | None = None,
    ) -> None:
        """Start the thread and wait until it is prepared.

        Args:
            engine: Stepped by this thread, and by those that submit if they may: then it must take several.
            scheduler: Where sequences come from.
            replies: Where results go.
            max_in_flight: Most batches on their way.
            prepare: Called once by the thread before its first batch; what it raises is raised here. Warming up must
                happen on the thread that will step: its OpenMP threads belong to it.
            recorder: Gets each batch whose result arrives.
        """
        self._engine = engine
        self._scheduler = scheduler
        self._replies = replies
        self._max_in_flight = max_in_flight
        self._recorder = recorder or EngineRecorder(enabled=False)
        self._slots = threading.Semaphore(max_in_flight)
        self._stepped_at = time.monotonic()
        self._prepared: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=[prepare], name="lazuli-runner", daemon=True)
        self._thread.start()
        self._prepared.result()
        self._closed = threading.Event()
        self._idle_thread = threading.Thread(target=self._use_idle_time, name="lazuli-idle", daemon=True)
        self._idle_thread.start()

    def submit(self, request: Request, *, may_step: bool = False, may_wait: bool = False) -> None:
        """Queue a request.

        Args:
            request: Its answer goes to its sender.
            may_step: Whether the calling thread may run it as a batch of its own, if nothing waits and a batch may be
                on its way beside the runner's: to wake the runner takes as long as to queue the batch.
            may_wait: Whether it may then wait for the result and deliver it, too.

        Raises:
            OverloadedError: If too much waits already.
            ShuttingDownError: If the runner is closed.
        """
        if may_step and self._slots.acquire(blocking=False):
            try:
                sequences = self._scheduler.take_now(request)
            except ShuttingDownError:
                self._slots.release()
                raise
            if sequences is not None:
                self._step(sequences, self._replies.receive if may_wait else self._replies.expect)
                return
            self._slots.release()
        self._scheduler.submit(request)

    def close(self) -> None:
        """Compute and answer everything that is queued, then end."""
        self._closed.set()
        self._idle_thread.join()
        self._scheduler.close()
        self._thread.join()
        for _ in range(self._max_in_flight):
            self._slots.acquire()  # each batch on its way has one, whoever stepped it
        self._slots.release(self._max_in_flight)
        self._replies.close()

    def _run(self, prepare: Callable[[], None]) -> None:
        try:
            prepare()
        except BaseException as error:
            self._prepared.set_exception(error)
            return
        self._prepared.set_result(None)
        while True:
            # The slot comes first: until there is one, more sequences can join the batch.
            self._slots.acquire()
            sequences = self._scheduler.next_batch()
            if not sequences:
                self._slots.release()
                return
            self._step(sequences)

    def _use_idle_time(self) -> None:
        more = True
        while not self._closed.wait(_GAP_S if more else _QUIET_S):
            try:
                more = self._engine.use_idle_time(quiet=time.monotonic() - self._stepped_at >= _QUIET_S)
            except Exception:  # nothing that can wait is worth the thread
                _log.exception("what was to be done in idle time failed")
                more = False

    def _step(self, sequences: SequenceOf[Sequence], take: _Take | None = None) -> None:
        """Run one batch; if it fails, its requests run alone, so that one of them cannot fail the others."""
        started = self._stepped_at = time.monotonic()
        try:
            result, ordered, num_tokens = self._queue(sequences)
        except Exception as error:  # out of memory, or a fault of the model
            num_tokens = sum(map(len, sequences))
            _log.exception("a batch of %d sequences, %d tokens failed", len(sequences), num_tokens)
            reason = str(error)
        else:
            take = take or self._replies.expect
            take(result, ordered, partial(self._note_arrival, started, sequences, num_tokens))
            return
        # Only here has the traceback let go of what the pass had allocated.
        self._isolate(sequences, reason)

    def _note_arrival(self, started: float, sequences: SequenceOf[Sequence], num_tokens: int) -> None:
        self._slots.release()
        step = (started, time.monotonic(), len(sequences), num_tokens)
        self._recorder.steps.append(step)
        if self._recorder.traces:
            note_step(sequences, Step(*step))

    def _queue(self, sequences: SequenceOf[Sequence]) -> tuple[LazyRows, SequenceOf[Sequence], int]:
        """Queue one pass; returns its result, the sequences in its order, and their tokens."""
        program = sequences[0].request.program
        if program != VECTORS:
            return *self._engine.run(program, sequences), sum(map(len, sequences))
        batch = _pack(sequences)
        return self._engine.step(batch), [sequences[row] for row in batch.order], len(batch.input_ids)

    def _isolate(self, sequences: SequenceOf[Sequence], reason: str) -> None:
        """Fail a request that was alone in its batch; run those that shared one again, each alone."""
        groups = _by_request(sequences)
        if len(groups) == 1:
            self._replies.fail(sequences[0].request, DeviceError(f"the forward pass failed: {reason}"))
        self._slots.release()
        for group in groups if len(groups) > 1 else []:
            self._slots.acquire()
            self._step(group)


def _pack(sequences: SequenceOf[Sequence]) -> RaggedBatch:
    batch = RaggedBatch.pack(
        [sequence.input_ids for sequence in sequences],
        [sequence.request.finish for sequence in sequences],
    )
    spans = [sequence.spans for sequence in sequences if sequence.spans is not None]
    return batch.with_spans(spans) if spans else batch


def _by_request(sequences: SequenceOf[Sequence]) -> list[list[Sequence]]:
    groups: dict[int, list[Sequence]] = {}
    for sequence in sequences:
        groups.setdefault(id(sequence.request), []).append(sequence)
    return list(groups.values())
