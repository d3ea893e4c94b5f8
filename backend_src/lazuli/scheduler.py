"""Which rows are computed next, counted in tokens.

Takes requests from `execute()`, returns lists of sequences for the next batch. Knows nothing of the device. The cost of
a batch grows with its tokens and hardly with its sequences, so tokens are what all limits count.

A person waits for a query, and nobody for a row of bulk. So there are two lanes. Queries go first, in batches of their
own; after each of those, bulk has its turn, so that neither can keep the other from being served. While queries come,
a batch has little bulk, as the next query will wait for the batches that are on their way. Within a lane, requests
take turns. A batch has one program.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping

from lazuli.errors import DeadlineExceededError, LazuliError, OverloadedError, ShuttingDownError
from lazuli.lane import Lane, Turn
from lazuli.request import QUERY, Request, Sequence

# So long after a query, another one is likely to come.
_COMPANY_S = 1.0
# How often to look through all for those that waited for too long, while there are some; and, since that takes a
# microsecond a request, how many times as long as it took is to pass at least until the next time.
_SWEEP_S = 0.001
_SWEEP_PAUSES = 20
# Of a budget: small enough for a query not to wait for long, large enough for the device to work well. On an H200, 2560
# tokens of Qwen3-Embedding-0.6B take 5 ms, which is 0.9 of the rate of full batches.
_BULK_SHARE = 16
_LEAST_BULK_TOKENS = 256
# One is computed, one is queued behind it, and one gathers.
_BATCHES = 3


def _refuse(request: Request, error: LazuliError) -> None:
    request.fail(error)


class Scheduler:
    """The queue between `execute()` and the runner. Safe to use from several threads.

    Out of the queue a batch has at most `enough_tokens`, or a third of what waits if that is more, up to
    `token_budget`. So while the device computes a batch, those who have the answers of the one before come again, and
    a third gathers: it never waits for any of them. Only of a long queue are batches as large as they may be.

    Whatever comes, for T = `enough_tokens`, b = `bulk_tokens` < T, rows of at most b tokens and of one program:

    - Of two batches in a row, one begins with bulk and one with queries, if both wait. A turn of bulk goes on until its
      next row exceeds b. So bulk gets about b of 2T tokens while queries never end; two turns always take more than b,
      so n tokens of it are taken within 4 * ceil(n / b) + 2 batches.
    - A query of no more than a turn is taken within 2 * ceil(Q / (T - b)) batches, where Q are the tokens of queries
      that wait when it comes, with its own. A larger one takes turns with those that come later.
    - Among r requests of bulk, one gets its next turn of max(b, `token_budget` / 2) tokens after at most r - 1 turns
      of others, each at most b longer.

    A longer row has a turn, or a batch, by itself. A batch of at most `max_sequences` short rows may be smaller.
    """

    def __init__(
        self,
        *,
        token_budget: int,
        max_sequences: int,
        max_queued_tokens: int,
        max_waiting_tokens: int,
        program_sequences: Mapping[str, int] | None = None,
        bulk_tokens: int | None = None,
        enough_tokens: int | None = None,
        max_queue_ms: int | None = None,
        refuse: Callable[[Request, LazuliError], None] = _refuse,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the limits.

        Args:
            token_budget: Most tokens of a batch; a longer sequence gets a batch of its own.
            max_sequences: Most sequences of a batch.
            max_queued_tokens: Once so many tokens wait, `wait_for_room` blocks.
            max_waiting_tokens: Once so many tokens wait in a lane, `submit` refuses more there.
            program_sequences: Most sequences of a batch of a program, where that differs.
            bulk_tokens: Most tokens of bulk in a batch while queries come. A request of no more is a query, unless it
                says what it is. None: a sixteenth of the budget, or 256 if that is more.
            enough_tokens: That keep the device busy; None: the budget.
            max_queue_ms: A request that waits for longer without being begun is refused; None for no limit.
            refuse: Called, with the lock held, for a request that is not to be computed; must not take long.
            clock: Seconds, for tests.
        """
        self._program_sequences = program_sequences or {}
        self._token_budget = token_budget
        self._max_sequences = max_sequences
        self._max_queued_tokens = max_queued_tokens
        self._max_waiting_tokens = max_waiting_tokens
        self._bulk_tokens = min(token_budget, bulk_tokens or max(_LEAST_BULK_TOKENS, token_budget // _BULK_SHARE))
        self._enough_tokens = token_budget if enough_tokens is None else enough_tokens
        self._max_queue_s = math.inf if max_queue_ms is None else max_queue_ms / 1000
        self._refuse = refuse
        self._clock = clock
        # Half a budget: a batch of bulk is made of few requests, so that those who send answers have little to do.
        turn_tokens = max(self._bulk_tokens, token_budget // 2)
        self._queries, self._bulk = (Lane(turn_tokens, self._most_of, self._refuse_late) for _ in range(2))
        self._is_bulk_due = False
        self._query_at = -math.inf
        self._next_sweep, self._pause_until = math.inf, -math.inf
        self._closed = False
        # Who waits for work and for room: to notify nobody takes as long as to take a batch.
        self._num_idle = self._num_blocked = 0
        self._lock = threading.Lock()
        self._not_empty = threading.Condition(self._lock)
        self._not_full = threading.Condition(self._lock)

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait now."""
        return self._queries.tokens + self._bulk.tokens

    @property
    def oldest_age_s(self) -> float:
        """How long the request has waited that has waited longest, or its last rows; 0 if none does."""
        with self._lock:
            return max(0.0, self._clock() - min(self._queries.oldest(), self._bulk.oldest()))

    def submit(self, request: Request) -> None:
        """Queue all rows of a request. Does not block.

        Raises:
            OverloadedError: If `max_waiting_tokens` wait already where it would.
            ShuttingDownError: If the scheduler is closed.
        """
        with self._lock:
            if self._closed:
                raise ShuttingDownError("the server is shutting down")
            is_query = self._is_query(request)
            lane = self._queries if is_query else self._bulk
            if lane.tokens >= self._max_waiting_tokens:
                raise OverloadedError(
                    f"Exceeds maximum queue size: {lane.tokens} tokens wait, and at {self._max_waiting_tokens} "
                    "no further request is taken; try again later"
                )
            now = self._clock()
            if is_query:
                self._query_at = now
            latest_start = now + self._max_queue_s
            deadline = math.inf if request.deadline_ms is None else now + request.deadline_ms / 1000
            lane.append(request, now, latest_start, deadline)
            if latest_start < self._next_sweep or deadline < self._next_sweep:
                self._next_sweep = max(min(latest_start, deadline), self._pause_until)
            if self._num_idle:
                self._not_empty.notify()

    def wait_for_room(self) -> None:
        """Block while `max_queued_tokens` wait and the scheduler is open.

        Inside `execute()` this keeps an instance busy, so that Triton balances over several.
        """
        with self._lock:
            self._num_blocked += 1
            while not self._closed and self._queries.tokens + self._bulk.tokens >= self._max_queued_tokens:
                self._not_full.wait()
            self._num_blocked -= 1

    def take_now(self, request: Request) -> list[Sequence] | None:
        """The sequences of a request that need not queue: nothing waits, and all of it is one batch.

        Returns:
            Its sequences, or None: it is to be submitted.

        Raises:
            ShuttingDownError: If the scheduler is closed.
        """
        with self._lock:
            if self._closed:
                raise ShuttingDownError("the server is shutting down")
            if self._queries.tokens or self._bulk.tokens or len(request.sequences) > self._most_of(request.program):
                return None
            now = self._clock()
            limit = self._token_budget
            if self._is_query(request):
                self._query_at = now
            else:
                limit = self._bulk_limit(now, limit)
            if request.num_tokens > limit and len(request.sequences) > 1:
                return None
            return list(request.sequences)

    def next_batch(self) -> list[Sequence]:
        """Wait for work and take what is next, of one program and within the budget; at least one sequence.

        Returns:
            The sequences; an empty list once the scheduler is closed and drained.
        """
        with self._lock:
            while True:
                if self._queries.tokens or self._bulk.tokens:
                    batch = self._take()
                    if batch:
                        return batch
                elif self._closed:
                    return []
                else:
                    self._num_idle += 1
                    self._not_empty.wait()
                    self._num_idle -= 1

    def sweep(self) -> None:
        """Let go of requests that have failed, or are late: their tokens count no more."""
        with self._lock:
            self._sweep(self._clock())
            self._not_full.notify_all()

    def close(self) -> None:
        """Refuse new requests; what is queued is still handed out."""
        with self._lock:
            self._closed = True
            self._not_full.notify_all()
            self._not_empty.notify_all()

    def _is_query(self, request: Request) -> bool:
        if request.workload is None:
            return request.num_tokens <= self._bulk_tokens
        return request.workload == QUERY

    def _most_of(self, program: str) -> int:
        return self._program_sequences.get(program, self._max_sequences)

    def _bulk_limit(self, now: float, most: int) -> int:
        """Most tokens of a batch that begins with bulk, of those that it may have."""
        return min(self._bulk_tokens, most) if now - self._query_at < _COMPANY_S else most

    def _take(self) -> list[Sequence]:
        now = self._clock()
        if now >= self._next_sweep:
            self._sweep(now)
        batch: list[Sequence] = []
        most, share = self._enough_tokens, (self._queries.tokens + self._bulk.tokens) // _BATCHES
        if share > most:
            most = min(share, self._token_budget)
        if self._bulk.tokens and (self._is_bulk_due or not self._queries.tokens):
            num_tokens = self._bulk.take(batch, 0, self._bulk_limit(now, most), now)
            self._queries.take(batch, num_tokens, most, now)
            self._is_bulk_due = False
        else:
            self._queries.take(batch, 0, most, now)
            self._is_bulk_due = self._bulk.tokens > 0
        if self._num_blocked:
            self._not_full.notify_all()
        return batch

    def _sweep(self, now: float) -> None:
        """Refuse what is late, wherever it waits: its turn may be far off."""
        for lane in (self._queries, self._bulk):
            lane.remove_late(now)
        expiry = min(self._queries.next_expiry(), self._bulk.next_expiry())
        self._pause_until = now + max(_SWEEP_S, _SWEEP_PAUSES * (self._clock() - now))
        self._next_sweep = max(expiry, self._pause_until)

    def _refuse_late(self, turn: Turn, now: float) -> None:
        self._refuse(turn.request, self._late_error(turn, now))

    def _late_error(self, turn: Turn, now: float) -> LazuliError:
        if turn.deadline <= now:
            return DeadlineExceededError(
                f"timed out: the deadline of {turn.request.deadline_ms} ms was over before all was computed"
            )
        return OverloadedError(
            f"Exceeds maximum queue time: not begun within {self._max_queue_s:g} s; unavailable, try again later"
        )
