"""Watches a serving server by real inferences, and says when it has to be restarted.

Takes a `Server`'s process and prober; returns a reason. Restarts nothing. A server that is merely busy is
left alone: refusing for load, finishing requests and using the processor are all signs of life.
"""

import threading
import time
from dataclasses import dataclass

from lazuli.launch.probe import ProbeError, ProbeModel, Prober
from lazuli.launch.process import ServerProcess
from lazuli.launch.rest import RestError

_PROBE_TIMEOUT_S = 10.0
_STRIKES = 2
# Below this share of one core a server that does not answer is stuck, not busy.
_IDLE_SHARE = 0.05


class ModelHealth:
    """What is known of one model from the probes so far."""

    def __init__(self, name: str, hang_timeout_s: float, now_s: float) -> None:
        self._name = name
        self._hang_timeout_s = hang_timeout_s
        self._last_answer_s = now_s
        self._strikes = 0

    def answered(self, now_s: float) -> None:
        """It answered us or somebody else, or said that it is full."""
        self._last_answer_s = now_s
        self._strikes = 0

    def failed(self, error: ProbeError, idle: bool, now_s: float) -> str | None:
        """A probe failed.

        Args:
            error: How.
            idle: Whether the server used no processor time to speak of meanwhile.
            now_s: The time.

        Returns:
            Why to restart, or None.
        """
        if not error.silent or idle:
            self._strikes += 1
        if self._strikes >= _STRIKES:
            return str(error)
        if now_s - self._last_answer_s > self._hang_timeout_s:
            return f"{self._name} has answered nothing for {self._hang_timeout_s:g} s"
        return None


class Watch:
    """Probes the outer models by turns, from a thread of its own."""

    def __init__(
        self,
        process: ServerProcess,
        prober: Prober,
        models: list[ProbeModel],
        interval_s: float,
        hang_timeout_s: float,
        timeout_s: float = _PROBE_TIMEOUT_S,
    ) -> None:
        self._process = process
        self._prober = prober
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        now_s = time.monotonic()
        self._health = {model: ModelHealth(model.name, hang_timeout_s, now_s) for model in models}
        self._reason: str | None = None
        self._end = threading.Event()
        threading.Thread(target=self._run, name="lazuli-watch", daemon=True).start()

    def fault(self) -> str | None:
        """Why the server has to be restarted, or None."""
        if self._process.exit_code() is None and self._process.dead_stubs():
            return "a process of a model died"
        return self._reason

    def close(self) -> None:
        """Ask no more; a probe under way is left to its timeout."""
        self._end.set()

    def _run(self) -> None:
        while self._reason is None and not self._end.wait(self._interval_s):
            for model in self._health:
                self._reason = self._reason or self._check(model)

    def _check(self, model: ProbeModel) -> str | None:
        before = self._snapshot(model)
        try:
            self._prober.probe(model, self._timeout_s)
        except ProbeError as error:
            return self._judge(model, error, before)
        self._health[model].answered(time.monotonic())
        return None

    def _judge(self, model: ProbeModel, error: ProbeError, before: "Snapshot") -> str | None:
        after = self._snapshot(model)
        if error.busy or after.successes > before.successes or self._was_unloaded(model):
            self._health[model].answered(after.time_s)
            return None
        idle = after.cpu_s - before.cpu_s < _IDLE_SHARE * (after.time_s - before.time_s)
        return self._health[model].failed(error, idle, after.time_s)

    def _was_unloaded(self, model: ProbeModel) -> bool:
        """Whether somebody with the admin key has taken it away: no fault, and it may come back."""
        try:
            return not self._prober.is_loaded(model.name)
        except (RestError, OSError):
            return False

    def _snapshot(self, model: ProbeModel) -> "Snapshot":
        try:
            successes = self._prober.success_count(model.name)
        except (RestError, OSError):
            successes = 0
        return Snapshot(time.monotonic(), self._process.cpu_s(), successes)


@dataclass(frozen=True)
class Snapshot:
    """What tells a busy server from a stuck one, when compared with an earlier one.

    Attributes:
        cpu_s: Processor time that the server and its stubs have used.
        successes: Requests that the model has answered; 0 if the server does not say.
    """

    time_s: float
    cpu_s: float
    successes: int
