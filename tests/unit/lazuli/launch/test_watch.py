import itertools
import time

from lazuli.launch.probe import ProbeError
from lazuli.launch.probe_model import ProbeModel
from lazuli.launch.process import Member
from lazuli.launch.watch import Watch

MODEL = ProbeModel("embed", (), False, steps=("tokenizer", "embedding"))
STEPS = [ProbeModel("tokenizer", (), False), ProbeModel("embedding", (), False)]
SILENT = ProbeError("embed: timed out", silent=True)


class FakeProcess:
    """Uses processor time in the models that are named."""

    def __init__(self, *busy):
        self.now_s = 0.0
        self.busy = busy
        self.stubs = []

    def cpu_s(self, models):
        self.now_s += 1000.0
        return self.now_s if set(models) & set(self.busy) else 0.0

    def own_cpu_s(self):
        return 0.0

    def exit_code(self):
        return None

    def members(self):
        return self.stubs


class FakeProber:
    """Fails for the models that are named, or for all."""

    def __init__(self, error=None, successes_step=0, failing=("embed", "tokenizer", "embedding")):
        self.error = error
        self.failing = failing
        self.count = 0
        self.step = successes_step
        self.asked = []
        self.loaded = True
        self.server_is_silent = False

    def is_loaded(self, model):
        return self.loaded

    def probe_server(self, timeout_s):
        if self.server_is_silent:
            raise ProbeError("the server answers nothing", silent=True)

    def probe(self, model, timeout_s):
        self.asked.append(model.name)
        if self.error and model.name in self.failing:
            raise self.error

    def success_count(self, model):
        self.count += self.step
        return self.count


def watch_by_hand(prober, process, checks=5):
    """A watch after some rounds."""
    watch = Watch(process, prober, [MODEL, *STEPS], interval_s=0.0, hang_timeout_s=300.0)
    for _ in range(checks):
        watch._reason = watch._reason or watch._check(MODEL)
    return watch


def fault_after(prober, process):
    return watch_by_hand(prober, process).fault()


def test_a_healthy_server():
    prober = FakeProber()
    watch = watch_by_hand(prober, FakeProcess())
    assert watch.fault() is None
    assert watch.complaints() == {}
    assert set(prober.asked) == {"embed"}, "steps are asked where there is doubt"


def test_a_stuck_server():
    assert fault_after(FakeProber(SILENT), FakeProcess()) == "embed: timed out"


def test_load_alone_is_no_fault():
    everything = ("tokenizer", "embedding")
    assert fault_after(FakeProber(SILENT, successes_step=1), FakeProcess()) is None
    assert fault_after(FakeProber(SILENT), FakeProcess(*everything)) is None
    assert fault_after(FakeProber(ProbeError("queue full", busy=True)), FakeProcess()) is None


def test_a_step_that_is_stuck_is_found_though_others_are_busy():
    """As when an engine is stopped and the tokenizer goes on filling its queue."""
    stuck = ProbeError("embedding: timed out", silent=True)
    prober = FakeProber(stuck, failing=("embed", "embedding"))
    assert fault_after(prober, FakeProcess("tokenizer")) == "embedding: timed out"
    assert prober.asked == ["embed", "tokenizer", "embedding"] * 2


def test_one_silence_is_a_complaint_until_there_is_an_answer():
    prober = FakeProber(SILENT)
    watch = watch_by_hand(prober, FakeProcess("tokenizer", "embedding"), checks=1)
    assert set(watch.complaints()) == {"embed", "tokenizer", "embedding"}
    prober.error = None
    watch._check(MODEL)
    assert watch.complaints() == {}


def test_a_full_queue_is_no_complaint():
    assert watch_by_hand(FakeProber(ProbeError("queue full", busy=True)), FakeProcess()).complaints() == {}


def test_a_model_that_somebody_unloaded_is_not_missed():
    prober = FakeProber(SILENT)
    prober.loaded = False
    assert fault_after(prober, FakeProcess()) is None
    prober.loaded = True
    assert fault_after(prober, FakeProcess()) == "embed: timed out"


def test_a_server_without_a_pulse_fails_in_all_models_and_none_is_asked():
    prober = FakeProber()
    prober.server_is_silent = True
    watch = Watch(FakeProcess(), prober, [MODEL, *STEPS], interval_s=0.001, hang_timeout_s=300.0)
    watch._pulse.answers.complaint = "the server answers nothing"
    assert watch.complaints() == dict.fromkeys(("embed", "tokenizer", "embedding"), "the server answers nothing")
    while watch.fault() is None:
        time.sleep(0.001)
    assert watch.fault() == "the server answers nothing"
    assert watch.server_is_silent()
    assert prober.asked == []
    watch.close()


def test_it_fails_since_the_first_probe_without_an_answer(monkeypatch):
    times = itertools.count(100.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    prober = FakeProber(SILENT, failing=("embed",))
    watch = watch_by_hand(prober, FakeProcess(), checks=0)
    assert watch.failing_since_s() is None
    first_s = next(times) + 1
    watch._check(MODEL)
    watch._check(MODEL)
    assert watch.failing_since_s() == first_s
    prober.error = None
    watch._check(MODEL)
    assert watch.failing_since_s() is None


def stub(state, model="embedding"):
    return Member(7, "triton_python_b", state, 0, model)


def test_a_dead_process_of_a_model_is_a_complaint_at_once_and_soon_a_fault():
    process = FakeProcess()
    process.stubs = [stub("S"), Member(8, "python3", "Z", 0)]
    watch = watch_by_hand(FakeProber(), process, checks=0)
    assert watch.fault() is None
    assert watch.complaints() == {}
    process.stubs = [stub("Z", model=None)]
    assert watch.complaints() == {"embedding": "its process died"}
    assert watch.fault() is None
    assert watch.fault() == "the process of embedding died"
    assert not watch.server_is_silent()


def test_one_that_dies_before_the_first_look_is_known_by_its_model():
    process = FakeProcess()
    process.stubs = [stub("S")]
    watch = watch_by_hand(FakeProber(), process, checks=0)
    process.stubs = [stub("Z", model=None)]
    assert watch.fault() is None
    assert watch.fault() == "the process of embedding died"


def test_a_process_that_the_server_stops_is_dead_for_a_moment_only():
    process = FakeProcess()
    watch = watch_by_hand(FakeProber(), process, checks=0)
    for stubs in ([stub("Z")], [], [Member(9, "triton_python_b", "Z", 0)], []):
        process.stubs = stubs
        assert watch.fault() is None
