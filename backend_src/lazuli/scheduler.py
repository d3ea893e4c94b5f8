"""First come, first served, counted in tokens.

Takes requests from `execute()`, returns lists of sequences for the next batch. Knows nothing of the device. The cost of
a batch grows with its tokens and hardly with its sequences, so tokens are what both limits count.
"""

import threading
from collections import deque
from collections.abc import Mapping

from lazuli.errors import OverloadedError, ShuttingDownError
from lazuli.request import Request, Sequence


class Scheduler:
    """The queue between `execute()` and the runner. Safe to use from several threads."""

    def __init__(
        self,
        *,
        token_budget: int,
        max_sequences: int,
        max_queued_tokens: int,
        max_waiting_tokens: int,
        program_sequences: Mapping[str, int] | None = None,
    ) -> None:
        """Set the limits.

        Args:
            token_budget: Most tokens of a batch; a longer sequence gets a batch of its own.
            max_sequences: Most sequences of a batch.
            max_queued_tokens: Once so many tokens wait, `wait_for_room` blocks.
            max_waiting_tokens: Once so many tokens wait, `submit` refuses more.
            program_sequences: Most sequences of a batch of a program, where that differs.
        """
        self._program_sequences = program_sequences or {}
        self._token_budget = token_budget
        self._max_sequences = max_sequences
        self._max_queued_tokens = max_queued_tokens
        self._max_waiting_tokens = max_waiting_tokens
        self._waiting: deque[Sequence] = deque()
        self._queued_tokens = 0
        self._closed = False
        lock = threading.Lock()
        self._not_empty = threading.Condition(lock)
        self._not_full = threading.Condition(lock)

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait now."""
        return self._queued_tokens

    def submit(self, request: Request) -> None:
        """Queue all rows of a request. Does not block.

        Raises:
            OverloadedError: If `max_waiting_tokens` wait already.
            ShuttingDownError: If the scheduler is closed.
        """
        with self._not_full:
            if self._closed:
                raise ShuttingDownError("the server is shutting down")
            if self._queued_tokens >= self._max_waiting_tokens:
                raise OverloadedError(
                    f"Exceeds maximum queue size: {self._queued_tokens} tokens wait, and at {self._max_waiting_tokens} "
                    "no further request is taken; try again later"
                )
            self._waiting.extend(request.sequences)
            self._queued_tokens += request.num_tokens
            self._not_empty.notify()

    def wait_for_room(self) -> None:
        """Block while `max_queued_tokens` wait and the scheduler is open.

        Inside `execute()` this keeps an instance busy, so that Triton balances over several.
        """
        with self._not_full:
            self._not_full.wait_for(lambda: self._closed or self._queued_tokens < self._max_queued_tokens)

    def take_now(self, request: Request) -> list[Sequence] | None:
        """The sequences of a request that need not queue: nothing waits, and all of it is one batch.

        Returns:
            Its sequences, or None: it is to be submitted.

        Raises:
            ShuttingDownError: If the scheduler is closed.
        """
        with self._not_full:
            if self._closed:
                raise ShuttingDownError("the server is shutting down")
            many = len(request.sequences) > 1
            too_long = many and request.num_tokens > self._token_budget
            if self._waiting or too_long or len(request.sequences) > self._most_sequences(request.program):
                return None
            return list(request.sequences)

    def next_batch(self) -> list[Sequence]:
        """Wait for work and take the oldest sequences that fit the budget and are of one program, at least one.

        Returns:
            The sequences; an empty list once the scheduler is closed and drained.
        """
        with self._not_empty:
            while True:
                self._not_empty.wait_for(lambda: self._closed or self._waiting)
                batch = self._take()
                if batch or (self._closed and not self._waiting):
                    return batch

    def close(self) -> None:
        """Refuse new requests; what is queued is still handed out."""
        with self._not_full:
            self._closed = True
            self._not_full.notify_all()
            self._not_empty.notify_all()

    def _most_sequences(self, program: str) -> int:
        return self._program_sequences.get(program, self._max_sequences)

    def _take(self) -> list[Sequence]:
        batch: list[Sequence] = []
        num_tokens = 0
        program = self._waiting[0].request.program if self._waiting else ""
        most = self._most_sequences(program)
        while self._waiting and len(batch) < most:
            length = len(self._waiting[0])
            if batch and num_tokens + length > self._token_budget:
                break
            if self._waiting[0].request.program != program:
                break
            sequence = self._waiting.popleft()
            self._queued_tokens -= length
            if not sequence.request.done:  # a failed request leaves rows behind
                batch.append(sequence)
                num_tokens += length
        self._not_full.notify_all()
        return batch
