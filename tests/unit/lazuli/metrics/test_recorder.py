from lazuli.errors import InputError, OptionError
from lazuli.metrics.recorder import EngineRecorder, all_outcomes, drain, outcome_of


def test_what_is_drained_is_gone():
    recorder = EngineRecorder()
    recorder.replies.extend([1.0, 2.0])
    assert list(drain(recorder.replies)) == [[1.0, 2.0]]
    assert list(drain(recorder.replies)) == []


def test_what_comes_meanwhile_is_left_for_the_next_time():
    recorder = EngineRecorder()
    recorder.replies.extend(map(float, range(100)))
    taken = []
    for some in drain(recorder.replies):
        assert len(some) <= 32, "longer, and requests would wait"
        taken += some
        recorder.replies.append(-1.0)
    assert taken == list(range(100))
    assert set(recorder.replies) == {-1.0}


def test_one_that_is_not_enabled_keeps_nothing():
    recorder = EngineRecorder(enabled=False)
    recorder.steps.append((1.0, 2.0, 3, 4))
    recorder.replies.append(1.0)
    recorder.requests.append(("ok", 1, 2, 3.0))
    assert not recorder.steps
    assert not recorder.replies
    assert not recorder.requests


def test_memory_is_bounded_if_nobody_drains():
    recorder = EngineRecorder()
    recorder.replies.extend([0.0] * (1 << 19))
    assert len(recorder.replies) == 1 << 18


def test_an_outcome_names_the_kind_and_never_the_text():
    assert outcome_of(OptionError("prompt_name: 'my secret'")) == "OptionError"
    assert outcome_of(InputError("text[0]: my secret")) == "InputError"
    assert outcome_of(KeyError("my secret")) == "Unexpected"


def test_every_kind_is_known_before_it_happens():
    kinds = {"ok", "Unexpected", "InputError", "OptionError", "OverloadedError", "DeviceError", "LazuliError"}
    assert kinds <= set(all_outcomes())
