"""When to try again, and how long to wait before.

Takes an error and the number of attempts so far, returns a delay or None. Does not sleep, does not know the
transport.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from lazuli_client.errors import RETRYABLE, LazuliError

# Unary gRPC deadlines of 0.5 to 30 ms crash Triton 24.10 under load (server#7368, #8034); stay well away from
# them.
MIN_TIMEOUT_S = 0.1
# About 31 s: a server whose model process died was back after 9 to 10 s on two cores, and with several models under
# load after 15 to 27 s.
DEFAULT_RETRIES = 24


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with jitter.

    Attributes:
        retries: Attempts after the first one; 0 turns retries off. With the other defaults, 24 retries span
            about 31 s (21 to 42), and each further one adds about 1.5 s.
        base_s: Delay before the first retry, before jitter; it doubles each time.
        cap_s: No delay is longer than this.
    """

    retries: int = DEFAULT_RETRIES
    base_s: float = 0.1
    cap_s: float = 2.0

    def delay_s(self, attempt: int, uniform: Callable[[], float] = random.random) -> float:
        """The delay after attempt `attempt` (from 0) failed: half to all of the exponential step.

        The jitter keeps clients that were refused together from coming back together.
        """
        # The exponent is limited, for 2.0 ** 1024 overflows.
        return min(self.cap_s, self.base_s * 2.0 ** min(attempt, 64)) * (0.5 + 0.5 * uniform())

    def next_delay_s(self, error: LazuliError, attempt: int, left_s: float) -> float | None:
        """The delay before the next attempt, or None if the error is final.

        Args:
            error: What the last attempt raised.
            attempt: Its number, from 0.
            left_s: Time left for the request; a retry must leave at least `MIN_TIMEOUT_S` for the attempt
                itself.
        """
        if attempt >= self.retries or not isinstance(error, RETRYABLE):
            return None
        delay_s = self.delay_s(attempt)
        return delay_s if left_s - delay_s >= MIN_TIMEOUT_S else None
