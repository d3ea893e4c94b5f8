"""Watches a serving server by real inferences, and says when it has to be restarted.

Takes a `Server`'s process and prober; returns a reason. Restarts nothing. A server that is merely busy is
left alone: refusing for load, finishing requests and using the processor are all signs of life.
"""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from lazuli.launch.answers import Answers
from lazuli.launch.probe import ProbeError, Prober
from lazuli.launch.probe_model import ProbeModel, outer_models
from lazuli.launch.process import ServerProcess
from lazuli.launch.pulse import Pulse
from lazuli.launch.rest import RestError

_PROBE_TIMEOUT_S = 5.0
# A second look at a model that did not answer comes soon.
_DOUBT_INTERVAL_S = 1.0


class Watch:
    """Probes the outer models by turns, from a thread of its own; where one says nothing, its steps too.

    A step that is stuck shows there even if others keep the server busy. Another thread feels the server's `Pulse`;
    while there is none, models are not asked.
    """

    def __init__(
        self,
        process: ServerProcess,
        prober: Prober,
        models: list[ProbeModel],
        interval_s: float,
        hang_timeout_s: float,
        timeout_s: float = _PROBE_TIMEOUT_S,
    ) -> None:
        """Begin.

        Args:
            process: The server's.
            prober: Asks.
            models: All that are served.
            interval_s: Between rounds; 0 for no probes: then only dead processes are seen.
            hang_timeout_s: After which a busy model that answers nothing is stuck, too.
            timeout_s: Of a probe.
        """
        self._process = process
        self._prober = prober
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        now_s = time.monotonic()
        self._models = {model.name: model for model in models}
        self._outer = outer_models(models)
        self._health = {model.name: Answers(model.name, hang_timeout_s, now_s) for model in models}
        self._reason: str | None = None
        self._stubs: dict[int, str] = {}
        self._dead: dict[int, str] = {}
        self._find_dead()  # whose process is whose shows only while it lives
        self._pulse = Pulse(process, prober, interval_s, hang_timeout_s, timeout_s)
        self._end = threading.Event()
        if interval_s > 0:
            threading.Thread(target=self._run, name="lazuli-watch", daemon=True).start()
            threading.Thread(target=self._pulse.run, args=[self._end], name="lazuli-pulse", daemon=True).start()

    def fault(self) -> str | None:
        """Why the server has to be restarted, or None."""
        reason = self._pulse.reason or self._reason
        if self._process.exit_code() is not None:
            return reason
        before, self._dead = self._dead, self._find_dead()
        # The server collects those that it stopped itself, so only one that stays dead has died on its own.
        died = sorted(self._dead[pid] for pid in self._dead if pid in before)
        return f"the process of {', '.join(died)} died" if died else reason

    def server_is_silent(self) -> bool:
        """Whether the fault is that the server itself answers nothing, whichever model is asked for."""
        return self._pulse.reason is not None

    def complaints(self) -> dict[str, str]:
        """For each model that cannot answer now, why."""
        found = {name: health.complaint for name, health in self._health.items() if health.complaint}
        if silence := self._pulse.answers.complaint:
            found = dict.fromkeys(self._health, silence)
        return {**found, **dict.fromkeys(self._find_dead().values(), "its process died")}

    def failing_since_s(self) -> float | None:
        """When the first probe was sent that has had no good answer since, by the clock that only goes forward."""
        asked = [one.failing_since_s for one in (self._pulse.answers, *self._health.values())]
        return min((at_s for at_s in asked if at_s is not None), default=None)

    def close(self) -> None:
        """Ask no more; a probe under way is left to its timeout."""
        self._end.set()

    def _find_dead(self) -> dict[int, str]:
        """The stubs that have ended and were not collected, with the models that they ran."""
        members = [member for member in self._process.members() if member.is_stub]
        self._stubs |= {member.pid: member.model for member in members if member.model is not None}
        return {member.pid: self._stubs.get(member.pid, "a model") for member in members if member.state == "Z"}

    def _run(self) -> None:
        pause_s = self._interval_s
        while self._reason is None and not self._end.wait(pause_s):
            for model in self._outer:
                if not self._pulse.answers.complaint:
                    self._reason = self._reason or self._check(model)
            in_doubt = any(health.complaint for health in self._health.values())
            pause_s = min(_DOUBT_INTERVAL_S, self._interval_s) if in_doubt else self._interval_s

    def _check(self, model: ProbeModel) -> str | None:
        steps = [self._models[name] for name in model.steps if name in self._models]
        before = self._snapshot(model)
        try:
            self._prober.probe(model, self._timeout_s)
        except ProbeError as error:
            reason = self._judge(model, error, before)
            if error.silent and self._health[model.name].complaint and not self._pulse.answers.complaint:
                for step in steps:
                    reason = reason or self._check(step)
            return reason
        for name in (model.name, *(step.name for step in steps)):
            self._health[name].answered(time.monotonic())
        return None

    def _judge(self, model: ProbeModel, error: ProbeError, before: "Snapshot") -> str | None:
        after = self._snapshot(model)
        health = self._health[model.name]
        if error.busy or after.successes > before.successes or self._was_unloaded(model):
            health.answered(after.time_s)
            return None
        return health.failed(error, before.time_s, after.time_s, after.cpu_s - before.cpu_s)

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
        return Snapshot(time.monotonic(), self._process.cpu_s(_processes(model)), successes)


def _processes(model: ProbeModel) -> Collection[str]:
    return model.steps or [model.name]


@dataclass(frozen=True)
class Snapshot:
    """What tells a busy model from a stuck one, when compared with an earlier one.

    Attributes:
        cpu_s: Processor time that its processes have used.
        successes: Requests that it has answered; 0 if the server does not say.
    """

    time_s: float
    cpu_s: float
    successes: int
