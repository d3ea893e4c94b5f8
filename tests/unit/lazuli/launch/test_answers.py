from lazuli.launch.answers import Answers
from lazuli.launch.probe import ProbeError

SILENT = ProbeError("embed: timed out", silent=True)
BROKEN = ProbeError("embed: stub is not healthy")


def failed(answers, error, now_s, busy=False):
    """One that was asked a second before."""
    return answers.failed(error, now_s - 1.0, now_s, cpu_s=1.0 if busy else 0.0)


def test_two_errors_in_a_row():
    answers = Answers("embed", 300.0, 0.0)
    assert failed(answers, BROKEN, 1.0, busy=True) is None
    assert failed(answers, BROKEN, 2.0, busy=True) == "embed: stub is not healthy"


def test_an_answer_forgives():
    answers = Answers("embed", 300.0, 0.0)
    assert failed(answers, BROKEN, 1.0) is None
    answers.answered(2.0)
    assert failed(answers, BROKEN, 3.0) is None


def test_silence_counts_only_while_idle():
    answers = Answers("embed", 300.0, 0.0)
    for second in range(1, 10):
        assert failed(answers, SILENT, second, busy=True) is None
    assert failed(answers, SILENT, 11.0) is None
    assert failed(answers, SILENT, 12.0) == "embed: timed out"


def test_even_a_busy_server_must_answer_sometimes():
    answers = Answers("embed", 300.0, 0.0)
    assert failed(answers, SILENT, 299.0, busy=True) is None
    assert failed(answers, SILENT, 301.0, busy=True) == "embed has answered nothing for 300 s"


def test_it_fails_since_the_first_probe_that_got_no_answer():
    answers = Answers("embed", 300.0, 0.0)
    assert answers.failing_since_s is None
    for second in (5.0, 6.0):
        failed(answers, SILENT, second, busy=True)
        assert answers.failing_since_s == 4.0
        assert answers.complaint == "embed: timed out"
    answers.answered(7.0)
    assert answers.failing_since_s is None
    assert answers.complaint is None
