"""Feels whether the server itself answers at all, whatever its models do.

Takes a `Server`'s process and prober; returns a reason. Knows no models: asked of a frozen server, each of them would
cost a timeout of its own, one after another.
"""

import threading
import time
from collections.abc import Callable

from lazuli.launch.answers import Answers
from lazuli.launch.probe import ProbeError, Prober
from lazuli.launch.process import ServerProcess


class Pulse:
    """Asks for `/v2/health/live`, from whatever thread calls `run`.

    With I the interval and T the timeout, a server that falls silent and uses no processor time is the subject of a
    complaint after max(I, T) + T at the latest, and of a reason to restart after max(I, T) + 2 T: a probe without an
    answer is followed at once by the next. Loads of models are no silence: in Triton 24.10 each blocks one of eight
    threads for HTTP, and others answer.

    Attributes:
        answers: What is known of the server.
        reason: Why to restart it, or None.
    """

    def __init__(
        self,
        process: ServerProcess,
        prober: Prober,
        interval_s: float,
        hang_timeout_s: float,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            process: The server's.
            prober: Asks.
            interval_s: From an answer to the next probe.
            hang_timeout_s: After which a busy server that answers nothing is stuck, too.
            timeout_s: Of a probe.
            clock: Only goes forward.
        """
        self._process = process
        self._prober = prober
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._clock = clock
        self.answers = Answers("the server", hang_timeout_s, clock())
        self.reason: str | None = None

    def run(self, end: threading.Event) -> None:
        """Ask until there is a reason, or the end."""
        while self.reason is None and not end.wait(0.0 if self.answers.complaint else self._interval_s):
            self._ask()

    def _ask(self) -> None:
        asked_s, cpu_s = self._clock(), self._process.own_cpu_s()
        try:
            self._prober.probe_server(self._timeout_s)
        except ProbeError as error:
            used_s = self._process.own_cpu_s() - cpu_s
            self.reason = self.answers.failed(error, asked_s, self._clock(), used_s)
        else:
            self.answers.answered(self._clock())
