from lazuli.launch.probe import ProbeError, ProbeModel
from lazuli.launch.watch import ModelHealth, Watch

MODEL = ProbeModel("embed", (), False)
SILENT = ProbeError("embed: timed out", silent=True)
BROKEN = ProbeError("embed: stub is not healthy")


def test_two_errors_in_a_row():
    health = ModelHealth("embed", 300.0, 0.0)
    assert health.failed(BROKEN, idle=False, now_s=1.0) is None
    assert health.failed(BROKEN, idle=False, now_s=2.0) == "embed: stub is not healthy"


def test_an_answer_forgives():
    health = ModelHealth("embed", 300.0, 0.0)
    assert health.failed(BROKEN, idle=False, now_s=1.0) is None
    health.answered(2.0)
    assert health.failed(BROKEN, idle=False, now_s=3.0) is None


def test_silence_counts_only_while_idle():
    health = ModelHealth("embed", 300.0, 0.0)
    for second in range(10):
        assert health.failed(SILENT, idle=False, now_s=second) is None
    assert health.failed(SILENT, idle=True, now_s=11.0) is None
    assert health.failed(SILENT, idle=True, now_s=12.0) == "embed: timed out"


def test_even_a_busy_server_must_answer_sometimes():
    health = ModelHealth("embed", 300.0, 0.0)
    assert health.failed(SILENT, idle=False, now_s=299.0) is None
    assert health.failed(SILENT, idle=False, now_s=301.0) == "embed has answered nothing for 300 s"


class FakeProcess:
    def __init__(self, cpu_step_s=0.0):
        self.now_s = 0.0
        self.step_s = cpu_step_s
        self.dead = []

    def cpu_s(self):
        self.now_s += self.step_s
        return self.now_s

    def exit_code(self):
        return None

    def dead_stubs(self):
        return self.dead


class FakeProber:
    def __init__(self, error=None, successes_step=0):
        self.error = error
        self.count = 0
        self.step = successes_step
        self.probes = 0
        self.loaded = True

    def is_loaded(self, model):
        return self.loaded

    def probe(self, model, timeout_s):
        self.probes += 1
        if self.error:
            raise self.error

    def success_count(self, model):
        self.count += self.step
        return self.count


def fault_after(prober, process, checks=5):
    """The fault after some rounds of the watch, run by hand."""
    watch = Watch(process, prober, [MODEL], interval_s=1000.0, hang_timeout_s=300.0)
    watch.close()
    for _ in range(checks):
        watch._reason = watch._reason or watch._check(MODEL)
    return watch.fault()


def test_a_healthy_server():
    assert fault_after(FakeProber(), FakeProcess()) is None


def test_a_stuck_server():
    assert fault_after(FakeProber(SILENT), FakeProcess()) == "embed: timed out"


def test_load_alone_is_no_fault():
    assert fault_after(FakeProber(SILENT, successes_step=1), FakeProcess()) is None
    assert fault_after(FakeProber(SILENT), FakeProcess(cpu_step_s=1.0)) is None
    assert fault_after(FakeProber(ProbeError("queue full", busy=True)), FakeProcess()) is None


def test_a_model_that_somebody_unloaded_is_not_missed():
    prober = FakeProber(SILENT)
    prober.loaded = False
    assert fault_after(prober, FakeProcess()) is None
    prober.loaded = True
    assert fault_after(prober, FakeProcess()) == "embed: timed out"


def test_a_dead_stub_is_a_fault_at_once():
    process = FakeProcess()
    process.dead = [7]
    assert fault_after(FakeProber(), process, checks=0) == "a process of a model died"
