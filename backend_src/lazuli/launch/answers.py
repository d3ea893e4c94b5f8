"""What is known of somebody who is asked again and again, and when silence is a fault.

Takes answers and failures with their times; returns a reason to restart. Asks nobody and reads no clock.
"""

from lazuli.launch.probe import ProbeError

_STRIKES = 2
# Below this share of one core somebody who does not answer is stuck, not busy.
_IDLE_SHARE = 0.05


class Answers:
    """Of one model, or of the server itself, from the probes so far.

    Attributes:
        complaint: Why it could not answer the last time; None if it could, or is excused.
        failing_since_s: When the first probe was sent that got no good answer since; None without a complaint.
    """

    def __init__(self, name: str, hang_timeout_s: float, now_s: float) -> None:
        self._name = name
        self._hang_timeout_s = hang_timeout_s
        self._last_answer_s = now_s
        self._strikes = 0
        self.complaint: str | None = None
        self.failing_since_s: float | None = None

    def answered(self, now_s: float) -> None:
        """It answered us or somebody else, or said that it is full."""
        self._last_answer_s = now_s
        self._strikes = 0
        self.complaint = None
        self.failing_since_s = None

    def failed(self, error: ProbeError, asked_s: float, now_s: float, cpu_s: float) -> str | None:
        """A probe failed.

        Args:
            error: How.
            asked_s: When it was sent.
            now_s: The time.
            cpu_s: Processor time that its processes used meanwhile.

        Returns:
            Why to restart, or None.
        """
        self.complaint = str(error)
        if self.failing_since_s is None:
            self.failing_since_s = asked_s
        idle = cpu_s < _IDLE_SHARE * (now_s - asked_s)
        if not error.silent or idle:
            self._strikes += 1
        if self._strikes >= _STRIKES:
            return str(error)
        if now_s - self._last_answer_s > self._hang_timeout_s:
            return f"{self._name} has answered nothing for {self._hang_timeout_s:g} s"
        return None
