"""Models that answer each request of a call by itself, and long ones beside the others.

Takes and returns `pb_utils` objects; what is computed is left to the models.
"""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from lazuli.metrics.recorder import OK, TokenizerRecorder, outcome_of
from lazuli.metrics.tokenizer import TokenizerMetrics
from lazuli.triton import protocol
from lazuli.triton.lane import Lane
from lazuli.triton.metrics import export
from lazuli.triton.observing import begin, observe
from lazuli.triton.shared_memory import AnswerRoom, find_pool

# Texts of so many bytes take milliseconds: others need not wait for them.
_SLOW_BYTES = 32 << 10
# Those of so many take longer than a thread takes to wake up: where several can work at once, one of them answers.
_LONG_BYTES = 2 << 10
# A thread that wants the interpreter gets it after so long, in place of 5 ms, or as soon as a library gives it up.
_SWITCH_S = 5e-4


class AnsweringModel(ABC):
    """Base of such a model, which calls `_start` at the end of its `initialize`."""

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer all requests; a bad one does not touch the others.

        Returns:
            The responses; None if they come later, as some take long.
        """
        sizes = list(map(_count_bytes, requests))
        if max(sizes) < self._short_bytes:
            return [self._answer(request)[0] for request in requests]
        self._answer_apart(requests, sizes)
        return None

    @abstractmethod
    def _compute(self, request: Any) -> dict[str, np.ndarray]:
        """The outputs for one request, by name; `truncated` is one of them, [N, 1]."""

    def finalize(self) -> None:
        """Answer what is left and take the metrics back."""
        self._long.close()
        self._slow.close()
        self._observer.close()
        if self._exporter is not None:
            self._exporter.close()

    def _start(self, threads: int, args: Mapping[str, str], metrics: str) -> None:
        room = AnswerRoom(find_pool())
        self._short_bytes = _LONG_BYTES if threads > 1 else _SLOW_BYTES
        self._long, self._slow = Lane(room, threads), Lane(room)
        sys.setswitchinterval(_SWITCH_S)
        self._observer = observe("tokenize", args)
        recorder = TokenizerRecorder(enabled=metrics == "on")
        self._recorded = recorder.requests
        self._exporter = export(TokenizerMetrics(recorder).collect, args, enabled=recorder.enabled)
        protocol.forget_start()

    def _answer_apart(self, requests: list[Any], sizes: list[int]) -> None:
        """Answer first what does not take long, and leave the rest to other threads."""
        for request, size in sorted(zip(requests, sizes, strict=True), key=lambda pair: pair[1]):
            sender = request.get_response_sender()
            if size < self._short_bytes:
                self._slow.send(sender, *self._answer(request))
            else:
                lane = self._long if size < _SLOW_BYTES else self._slow
                lane.submit(size, sender, partial(self._answer, request))

    def _answer(self, request: Any) -> tuple[Any, int]:
        """The response to a request, and how many bytes its tensors have."""
        started, trace = time.monotonic(), begin(self._observer, request)
        failure: Exception | None = None
        try:
            outputs = self._compute(request)
            response = protocol.make_response(outputs)
            num_bytes = sum(values.nbytes for values in outputs.values())
            rows, truncated = len(outputs["truncated"]), np.count_nonzero(outputs["truncated"])
        except Exception as error:  # raising out of execute() would fail the other requests of the call too
            failure, response, num_bytes = error, protocol.make_error(error), len(str(error))
            rows, truncated = protocol.count_rows(request), 0
        outcome = OK if failure is None else outcome_of(failure)
        self._recorded.append((outcome, rows, truncated, time.monotonic() - started))
        trace.end(rows, None, failure)
        return response, num_bytes


def _count_bytes(request: Any) -> int:
    """Bytes of the texts of a request."""
    arrays = [tensor.as_numpy() for tensor in request.inputs()]
    return sum(sum(map(len, array.ravel())) for array in arrays if array.dtype == np.object_)
