"""Requests that wait, each served for so many tokens before it is the next one's turn.

Takes requests, returns their sequences in the order in which they are to be computed. Knows nothing of clocks, threads
or other lanes: its owner holds a lock, and says how late it is.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from lazuli.request import Request, Sequence


@dataclass(slots=True)
class Turn:
    """A request that waits, or some of whose rows do.

    Attributes:
        request: The request.
        credit: Tokens that it may still take before others are served.
        queued_at: When it came, on the clock of the owner.
        latest_start: When it is refused unless it was begun, likewise.
        deadline: When what is left of it is not computed any more.
        place: How many of its sequences were taken.
    """

    request: Request
    credit: int
    queued_at: float
    latest_start: float
    deadline: float
    place: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens that wait."""
        return self.request.num_tokens - sum(map(len, self.request.sequences[: self.place]))

    def is_late(self, now: float) -> bool:
        """Whether it is not to be computed any more."""
        return self.deadline <= now or (not self.place and self.latest_start <= now)

    def expires_at(self) -> float:
        """When it will be late."""
        return self.deadline if self.place else min(self.deadline, self.latest_start)


class Lane:
    """A queue of requests that take turns. Those of no more tokens than a turn are first come, first served.

    Attributes:
        tokens: How many wait.
    """

    def __init__(self, turn_tokens: int, most_of: Callable[[str], int], refuse: Callable[[Turn, float], None]) -> None:
        """Make an empty lane.

        Args:
            turn_tokens: Tokens of a turn; the row that exceeds them is its last.
            most_of: Most sequences of a batch of a program.
            refuse: Called with what is late when it leaves, and with the time.
        """
        self._turn_tokens = turn_tokens
        self._most_of = most_of
        self._refuse = refuse
        self._turns: deque[Turn] = deque()
        self.tokens = 0

    def append(self, request: Request, queued_at: float, latest_start: float, deadline: float) -> None:
        """Let a request wait behind the others."""
        self._turns.append(Turn(request, self._turn_tokens, queued_at, latest_start, deadline))
        self.tokens += request.num_tokens

    def take(self, batch: list[Sequence], num_tokens: int, limit: int, now: float) -> int:
        """Move sequences into a batch, as long as they are of its program; at least one into an empty batch.

        Requests that have failed meanwhile leave, and so do those that are late.

        Args:
            batch: What goes there.
            num_tokens: Tokens that are there already.
            limit: Most tokens of the batch; a longer sequence gets one of its own.
            now: On the clock of the owner.

        Returns:
            Tokens of the batch.
        """
        turns = self._turns
        program = batch[0].request.program if batch else ""
        while turns:
            turn = turns[0]
            request = turn.request
            if request.done or turn.is_late(now):
                self._dismiss(turns.popleft(), now)
                continue
            if not batch:
                program = request.program
            room = self._most_of(program) - len(batch)
            if room <= 0 or request.program != program:
                break
            tokens = request.num_tokens
            fits = tokens <= turn.credit and num_tokens + tokens <= limit
            if fits and not turn.place and len(request.sequences) <= room:
                batch.extend(request.sequences)
            else:
                tokens = _take_rows(turn, batch, limit - num_tokens, room)
                turn.credit -= tokens
            num_tokens += tokens
            self.tokens -= tokens
            if 0 < turn.place < len(request.sequences):
                if turn.credit > 0:
                    break  # the batch is full
                turn.credit = self._turn_tokens
                turns.append(turn)
            elif not tokens:
                break
            turns.popleft()
        return num_tokens

    def remove_late(self, now: float) -> None:
        """Remove what is late or has failed, wherever it waits."""
        kept: deque[Turn] = deque()
        for turn in self._turns:
            if turn.request.done or turn.is_late(now):
                self._dismiss(turn, now)
            else:
                kept.append(turn)
        self._turns = kept

    def oldest(self) -> float:
        """When the first of them came that still waits; infinity if none does."""
        return min((turn.queued_at for turn in self._turns), default=math.inf)

    def next_expiry(self) -> float:
        """When the first of them will be late, if ever."""
        return min((turn.expires_at() for turn in self._turns), default=math.inf)

    def _dismiss(self, turn: Turn, now: float) -> None:
        self.tokens -= turn.num_tokens
        if not turn.request.done:
            self._refuse(turn, now)


def _take_rows(turn: Turn, batch: list[Sequence], num_tokens: int, num_rows: int) -> int:
    """Take rows until the batch is full or the credit used up; returns their tokens."""
    sequences = turn.request.sequences
    taken = 0
    for sequence in sequences[turn.place : turn.place + num_rows]:
        length = len(sequence.input_ids)
        if taken >= turn.credit or (batch and taken + length > num_tokens):
            break
        batch.append(sequence)
        taken += length
        turn.place += 1
    return taken
