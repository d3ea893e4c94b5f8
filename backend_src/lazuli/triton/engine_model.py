"""What all models share that run an engine: token ids in, answers out.

Answers come later, from other threads; only that of a lone request is returned by `execute()`, which is sooner. Whether
the model's transaction policy is decoupled decides if a request is answered in parts.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from lazuli import openmp  # noqa: F401 - before anything that imports torch
from lazuli.config import EngineConfig
from lazuli.options import Options
from lazuli.triton import protocol
from lazuli.triton.metrics import export
from lazuli.triton.observing import begin, observe
from lazuli.triton.response_sender import ResponseSender
from lazuli.triton.shared_memory import AnswerRoom, find_pool

# A request that comes sooner after an answer than a client can ask again was waiting for it.
_TURNAROUND_S = 0.0003
# So long after requests overlapped, others are likely to.
_COMPANY_S = 0.1


class EngineModel:
    """Triton's interface to a service.

    Attributes:
        service_type: Makes the service, an `EngineService` whose `submit` takes the inputs.
        options_type: What the parameters of a request mean.
        inputs: Names of its tensors, in the order of `submit`; the first tells how many rows there are.
        optional_inputs: Those that may be missing, and come behind the others; None then.
    """

    service_type: ClassVar[Callable[..., Any]]
    options_type: ClassVar[type[Options]]
    inputs: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")
    optional_inputs: ClassVar[tuple[str, ...]] = ()

    def initialize(self, args: dict[str, str]) -> None:
        """Load and warm up the engine; the model is ready when this returns."""
        protocol.log_to_triton(args)
        config = EngineConfig.from_parameters(protocol.read_parameters(args))
        model = json.loads(args["model_config"])
        self._streaming = bool(model.get("model_transaction_policy", {}).get("decoupled", False))
        self._max_rows = int(model.get("max_batch_size", 0))
        self._has_siblings = protocol.count_instances(model) > 1
        self._room = AnswerRoom(find_pool())
        self._last_sender: ResponseSender | None = None
        self._returned_at = self._overlapped_at = float("-inf")
        gpu_index = protocol.read_gpu_index(args)
        self._service = type(self).service_type(config, streaming=self._streaming, gpu_index=gpu_index)
        self._observer = observe("engine", args)
        self._service.recorder.traces = self._observer.traces
        self._exporter = export(self._service.metrics.collect, args, enabled=self._service.recorder.enabled)
        protocol.forget_start()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer a request that comes alone, or queue each, then wait for room if there are other instances.

        To wait keeps Triton from bringing more to a full engine while another one has room. A single instance takes all
        there is: in Triton's queue, a query would wait behind what is not urgent, and nothing is refused. Where a call
        is full, more may wait there, and it is not waited for either.

        Returns:
            The response of a request that this thread ran, which so has one thread less to wake up on its way; None
            if answers come later.
        """
        self._note_overlap(len(requests))
        if len(requests) == 1:
            return self._execute_alone(requests[0])
        self._wait_for_room(sum(self._submit(request, self._make_sender(request)) for request in requests))
        return None

    def finalize(self) -> None:
        """Answer what is left and stop the threads."""
        self._service.close()
        self._observer.close()
        if self._exporter is not None:
            self._exporter.close()

    def _note_overlap(self, num_requests: int) -> None:
        now = time.monotonic()
        unanswered = self._last_sender is not None and not self._last_sender.answered
        if num_requests > 1 or unanswered or now - self._returned_at < _TURNAROUND_S:
            self._overlapped_at = now

    def _execute_alone(self, request: Any) -> list[Any] | None:
        """Run or queue one request.

        While this thread waits for vectors, others would wait in Triton's queue instead of getting ready beside the
        device, so it only waits where requests do not overlap.
        """
        may_wait = not self._streaming and time.monotonic() - self._overlapped_at > _COMPANY_S
        self._last_sender = sender = self._make_sender(request, returning=not self._streaming)
        rows = self._submit(request, sender, may_step=True, may_wait=may_wait)
        if sender.returned is None:
            self._wait_for_room(rows)
            return None
        self._returned_at = time.monotonic()
        response, sender.returned = sender.returned, None  # it holds shared memory, and the sender stays
        return [response]

    def _wait_for_room(self, rows: int) -> None:
        if self._has_siblings and 2 * rows < self._max_rows:
            self._service.wait_for_room()

    def _make_sender(self, request: Any, *, returning: bool = False) -> ResponseSender:
        thread = threading.get_ident() if returning else None
        sender = request.get_response_sender()
        return ResponseSender(
            sender,
            self._room,
            with_index=self._streaming,
            returning_thread=thread,
            recorder=self._service.recorder,
            trace=begin(self._observer, request),
        )

    def _submit(self, request: Any, sender: ResponseSender, *, may_step: bool = False, may_wait: bool = False) -> int:
        """Queue one request, or answer it with an error; returns how many rows it has."""
        rows = 0
        try:
            tensors: list[Any] = [protocol.read_tensor(request, name) for name in self.inputs]
            sender.rows = rows = len(tensors[0])
            sender.tokens = np.count_nonzero(tensors[1])  # what else is in that mask is looked at later
            tensors += [protocol.find_tensor(request, name) for name in self.optional_inputs]
            options = self.options_type.from_json(protocol.read_options(request))
            options = options.within(protocol.read_timeout_ms(request))
            self._service.submit(*tensors, options, sender, may_step=may_step, may_wait=may_wait, trace=sender.trace)
        except Exception as error:  # raising out of execute() would fail the other requests of the call too
            sender.send_error(error)
        return rows
