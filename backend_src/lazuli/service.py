"""A service inside one process: engine, scheduler, runner and reply threads, wired together; here, that of vectors.

Takes unchecked token arrays with a `Sender`; answers come later, from other threads. Knows nothing of Triton, so
all of it can be driven in a test.
"""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import torch

from lazuli.allocator import keep_memory
from lazuli.cancellation import CancellationWatch
from lazuli.config import EngineConfig
from lazuli.device import choose_device
from lazuli.engine import Engine
from lazuli.errors import ConfigError, InputError
from lazuli.metrics.engine import EngineMetrics, EngineState
from lazuli.metrics.recorder import EngineRecorder
from lazuli.options import Options, RequestOptions
from lazuli.reply import ReplyPool
from lazuli.request import AnswerForm, Request, Sender, StreamRequest, UnaryRequest
from lazuli.runner import Runner
from lazuli.scheduler import Scheduler
from lazuli.splitting.request import ChunkedRequest
from lazuli.token_input import ChunkedRows, split_chunks
from lazuli.tokenwise.form import TokenForm
from lazuli.tokenwise.request import PAIRS, TokenRequest, TokenStreamRequest
from lazuli.tracing.request_trace import RequestTrace

_log = logging.getLogger(__name__)
# Triton hands requests to instances by turns anyhow; once all of them are full, queries wait behind bulk.
_QUEUED_BUDGETS = 16
_WAITING_BUDGETS = 256
# Which keep an H200 busy: twice as many are computed hardly sooner a token. A CPU computes nothing beside its runner.
_ENOUGH_TOKENS = 8192


class EngineService:
    """Accepts requests of some kind until it is closed.

    Attributes:
        task: The one task that its engine may have; None for any.
    """

    task: ClassVar[str | None] = None

    def __init__(self, config: EngineConfig, *, streaming: bool, gpu_index: int | None = None) -> None:
        """Load the engine, warm it up and start the threads.

        Args:
            config: The parameters.
            streaming: Answer in parts, as batches finish, instead of in one piece.
            gpu_index: The GPU that Triton gave to this instance, or None.

        Raises:
            ConfigError: If the checkpoint, the device or a parameter is unusable, or the task is another one.
        """
        if self.task is not None and config.task != self.task:
            raise ConfigError(f"task: {config.task!r}, but this model needs {self.task!r}")
        device = choose_device(config.device, gpu_index)
        if device.type == "cpu":
            keep_memory()  # elsewhere activations are not malloc's, and threads would only queue for its one arena
        torch.set_num_threads(config.threads or len(os.sched_getaffinity(0)))
        self.engine = _on_passing_thread(lambda: Engine(config, device))
        if self.engine.device.type == "cpu" and not self.engine.needs_torch_threads:
            torch.set_num_threads(1)  # or else they would spin where those of the model compute
        self._quantizer = self.engine.dense_model.quantizer("cpu")
        self._request_type: type[Request] = StreamRequest if streaming else UnaryRequest
        budget = self.engine.token_budget
        _log.info("engine: %s on %s, %d tokens a batch", config.checkpoint, self.engine.device, budget)
        self.recorder = EngineRecorder(enabled=config.metrics == "on")
        self.metrics = EngineMetrics(self.recorder, self._look)
        replies = ReplyPool(config.reply_threads, self.recorder)
        self._scheduler = Scheduler(
            token_budget=budget,
            max_sequences=config.max_batch_sequences,
            max_queued_tokens=config.max_queued_tokens or _QUEUED_BUDGETS * budget,
            max_waiting_tokens=config.max_waiting_tokens or _WAITING_BUDGETS * budget,
            program_sequences={PAIRS: max(1, config.max_batch_sequences // 2)},  # of two texts each
            bulk_tokens=config.bulk_tokens,
            enough_tokens=None if device.type == "cpu" else min(budget, _ENOUGH_TOKENS),
            max_queue_ms=config.max_queue_ms,
            refuse=replies.fail,
        )
        self._runner = Runner(
            self.engine, self._scheduler, replies, config.max_in_flight, self.engine.warm_up, self.recorder
        )
        self._watch = CancellationWatch(self._scheduler.sweep)

    def _queue(
        self,
        request: Request,
        options: Options,
        *,
        may_step: bool = False,
        may_wait: bool = False,
        trace: RequestTrace | None = None,
    ) -> None:
        """Queue a request whose rows are checked.

        Args:
            request: Its answer goes to its sender, perhaps before this returns; not if it raises.
            options: Of these, `workload` and `deadline_ms` count here.
            may_step: Whether this thread may queue the forward pass on the device, if that is idle. Not for one of
                several requests that came together and could share a pass.
            may_wait: Whether it may then also wait for the result and call the sender itself.
            trace: Notes the batches that it is in.

        Raises:
            OverloadedError: If too much waits already.
            ShuttingDownError: If the service is closed.
        """
        request.workload, request.deadline_ms, request.trace = options.workload, options.deadline_ms, trace
        # On a CPU a step is the computation itself, which holds up this thread; and torch makes threads for each that
        # steps.
        if self.engine.device.type == "cpu" and (not may_wait or self.engine.needs_torch_threads):
            may_step = False
        self._runner.submit(request, may_step=may_step, may_wait=may_wait)
        if not request.done:
            self._watch.add(request)

    def wait_for_room(self) -> None:
        """Block while too many tokens wait for more to be fetched."""
        self._scheduler.wait_for_room()

    def _look(self) -> EngineState:
        scheduler = self._scheduler
        return EngineState(scheduler.queued_tokens, scheduler.oldest_age_s, self.engine.graph_counters)

    def close(self) -> None:
        """Answer everything that was accepted, then end the threads."""
        self._watch.close()
        self._runner.close()
        self.engine.close()


class EmbeddingService(EngineService):
    """Vectors of texts."""

    def submit(
        self,
        input_ids: np.ndarray,
        attention_mask: np.ndarray,
        options: RequestOptions,
        sender: Sender,
        **more: Any,
    ) -> None:
        """Queue one request. The answer goes to `sender`.

        Args:
            input_ids: [N, S] int32.
            attention_mask: [N, S] int8.
            options: Of these, `output`, `dimensions`, `force_dimensions` and `normalize` count here, and those of
                `_queue`.
            sender: Gets the answer, perhaps before this returns; not called if it raises.
            more: `may_step`, `may_wait` and `trace` of `_queue`.

        Raises:
            InputError: If the arrays or the options are unusable.
            OverloadedError: If too much waits already.
            ShuttingDownError: If the service is closed.
        """
        form = self.engine.answers.choose(options)
        chunked = split_chunks(input_ids, attention_mask, self.engine.limits)
        request = self._make_request(chunked, form, sender)
        if chunked.starts is not None:
            request = ChunkedRequest(chunked, request, self._quantizer)
        self._queue(request, options, **more)

    def _make_request(self, chunked: ChunkedRows, form: AnswerForm, sender: Sender) -> Request:
        if not isinstance(form, TokenForm):
            return self._request_type(chunked.rows, form, sender)
        if chunked.starts is not None:
            raise InputError("attention_mask: 2 marks a further chunk of a text, but only vectors of texts have a mean")
        token_type = TokenStreamRequest if self._request_type is StreamRequest else TokenRequest
        return token_type(chunked.rows, form, sender)


def _on_passing_thread(load: Callable[[], Engine]) -> Engine:
    """Load on a thread that ends, and with it the OpenMP threads that torch made for it.

    GNU OpenMP keeps a pool for every thread that ever computed. Once all of them together outnumber the cores, it no
    longer spins between operations, and each operation pays for waking its threads: a text of 16 tokens on two cores
    then takes 10 ms instead of 4.
    """
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(load).result()
