"""Models that answer each request of a call by itself, and several at the same time.

Takes and returns `pb_utils` objects; what is computed is left to the models.
"""

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lazuli.triton import protocol


class AnsweringModel(ABC):
    """Base of such a model, which calls `_start` at the end of its `initialize`."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer all requests; a bad one does not touch the others."""
        if len(requests) == 1 or self._threads == 1:  # a thread would have to wake up first
            return list(map(self._answer, requests))
        return list(self._pool.map(self._answer, requests))

    @abstractmethod
    def _compute(self, request: Any) -> dict[str, np.ndarray]:
        """The outputs for one request, by name."""

    def _start(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lazuli-request")
        protocol.forget_start()

    def _answer(self, request: Any) -> Any:
        try:
            return protocol.make_response(self._compute(request))
        except Exception as error:  # raising out of execute() would fail the other requests of the call too
            return protocol.make_error(error)
