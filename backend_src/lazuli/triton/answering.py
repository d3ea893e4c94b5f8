"""Models that answer each request of a call by itself, and several at the same time.

Takes and returns `pb_utils` objects; what is computed is left to the models.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lazuli.metrics.recorder import OK, TokenizerRecorder, outcome_of
from lazuli.metrics.tokenizer import TokenizerMetrics
from lazuli.triton import protocol
from lazuli.triton.metrics import export


class AnsweringModel(ABC):
    """Base of such a model, which calls `_start` at the end of its `initialize`."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer all requests; a bad one does not touch the others."""
        if len(requests) == 1 or self._threads == 1:  # a thread would have to wake up first
            return list(map(self._answer, requests))
        return list(self._pool.map(self._answer, requests))

    @abstractmethod
    def _compute(self, request: Any) -> dict[str, np.ndarray]:
        """The outputs for one request, by name; `truncated` is one of them, [N, 1]."""

    def finalize(self) -> None:
        """Take the metrics back."""
        if self._exporter is not None:
            self._exporter.close()

    def _start(self, threads: int, args: Mapping[str, str], metrics: str) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lazuli-request")
        recorder = TokenizerRecorder(enabled=metrics == "on")
        self._recorded = recorder.requests
        self._exporter = export(TokenizerMetrics(recorder).collect, args, enabled=recorder.enabled)
        protocol.forget_start()

    def _answer(self, request: Any) -> Any:
        started = time.monotonic()
        try:
            outputs = self._compute(request)
            response = protocol.make_response(outputs)
        except Exception as error:  # raising out of execute() would fail the other requests of the call too
            rows = protocol.count_rows(request)
            self._recorded.append((outcome_of(error), rows, 0, time.monotonic() - started))
            return protocol.make_error(error)
        truncated = outputs["truncated"]
        counts = len(truncated), np.count_nonzero(truncated)
        self._recorded.append((OK, *counts, time.monotonic() - started))
        return response
