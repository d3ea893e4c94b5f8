import pytest

from lazuli.launch.probe import ProbeError
from lazuli.launch.pulse import Pulse

HANG_S = 300.0


class FakeServer:
    """Answers after 1 ms until it falls silent; is process, prober, clock and the event that waits, in one."""

    def __init__(self, silent_from_s, silent_to_s=float("inf"), busy=False, stop_at_s=float("inf")):
        self.now_s = 0.0
        self._silence = silent_from_s, silent_to_s
        self._busy = busy
        self._stop_at_s = stop_at_s
        self.complained_at_s = None
        self.pulse = None

    def clock(self):
        return self.now_s

    def own_cpu_s(self):
        return self.now_s if self._busy or self.now_s < self._silence[0] else self._silence[0]

    def probe_server(self, timeout_s):
        if self._silence[0] <= self.now_s + 0.001 <= self._silence[1]:
            self.now_s += timeout_s
            raise ProbeError("the server answers nothing", silent=True)
        self.now_s += 0.001

    def wait(self, seconds):
        if self.pulse.answers.complaint and self.complained_at_s is None:
            self.complained_at_s = self.now_s
        self.now_s += seconds
        return self.now_s > self._stop_at_s


def run(server, interval_s=5.0, timeout_s=5.0):
    server.pulse = Pulse(server, server, interval_s, HANG_S, timeout_s, server.clock)
    server.pulse.run(server)
    return server.pulse


@pytest.mark.parametrize(("interval_s", "timeout_s"), [(5.0, 5.0), (0.5, 2.0), (30.0, 1.0)])
@pytest.mark.parametrize("phase", [0.0, 0.0001, 0.3, 0.7, 0.999])
def test_silence_is_a_complaint_and_a_reason_within_the_stated_time(interval_s, timeout_s, phase):
    silent_from_s = 20 * interval_s + phase * (interval_s + 0.001)
    server = FakeServer(silent_from_s)
    pulse = run(server, interval_s, timeout_s)
    longest_s = max(interval_s, timeout_s)
    assert pulse.reason == "the server answers nothing"
    assert 0 < server.complained_at_s - silent_from_s <= longest_s + timeout_s
    assert timeout_s < server.now_s - silent_from_s <= longest_s + 2 * timeout_s
    assert pulse.answers.failing_since_s == pytest.approx(server.now_s - 2 * timeout_s)


def test_a_short_silence_is_forgiven():
    server = FakeServer(silent_from_s=7.0, silent_to_s=12.0, stop_at_s=200.0)
    pulse = run(server)
    assert server.complained_at_s is not None
    assert pulse.reason is None
    assert pulse.answers.complaint is None


def test_a_server_that_uses_the_processor_is_left_alone_until_the_hang_timeout():
    server = FakeServer(silent_from_s=7.0, busy=True)
    pulse = run(server)
    assert pulse.reason == "the server has answered nothing for 300 s"
    assert HANG_S < server.now_s < HANG_S + 20.0


def test_it_ends_when_told():
    assert run(FakeServer(silent_from_s=1000.0, stop_at_s=50.0)).reason is None
