import logging
from types import SimpleNamespace

import pytest

from lazuli.errors import DeviceError, InputError, LazuliError, OverloadedError, ReplyError
from lazuli.logs.lines import JsonFormatter, TextFormatter
from lazuli.logs.settings import LogSettings
from lazuli.metrics.recorder import Step
from lazuli.tracing.observer import Observer
from lazuli.tracing.request_trace import note_step

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARAMETERS = f'{{"traceparent": "00-{TRACE}-b7ad6b7169203331-01"}}'
# Each with whether the server is to blame.
ERRORS = [
    (InputError("text[0]: zebrafinch"), False),
    (OverloadedError("full"), False),
    (DeviceError("gone"), True),
    (ReplyError("no room"), True),
    (KeyError("zebrafinch"), True),
]


class Tracer:
    def __init__(self):
        self.traced, self.closed = [], False

    def trace(self, request, ended, outcome, counts):
        self.traced.append((request, ended, outcome, counts))

    def close(self):
        self.closed = True


@pytest.fixture
def lines(caplog):
    """A function, as the test's own records are not there yet."""
    caplog.set_level(logging.INFO, logger="lazuli.tracing.observer")
    return lambda: caplog.records


def fields(record):
    return {name: value for name, value in record.fields.items() if name != "duration_ms"}


@pytest.mark.parametrize("which", ["faults", "errors", "all"])
@pytest.mark.parametrize(("error", "is_fault"), ERRORS)
def test_which_failures_are_logged(lines, which, error, is_fault):
    Observer(LogSettings(requests=which)).begin("7", PARAMETERS).end(2, 9, error)
    assert len(lines()) == (1 if is_fault or which != "faults" else 0)
    for line in lines():
        assert line.levelno == (logging.ERROR if is_fault else logging.WARNING)
        assert line.getMessage() == "request failed"
        assert line.fields["duration_ms"] >= 0
        kind = "Unexpected" if isinstance(error, KeyError) else type(error).__name__
        assert fields(line) == {"request_id": "7", "trace_id": TRACE, "outcome": kind, "rows": 2, "tokens": 9}


@pytest.mark.parametrize(("which", "expected"), [("faults", 0), ("errors", 0), ("all", 1)])
def test_which_answers_are(lines, which, expected):
    Observer(LogSettings(requests=which)).begin("", "").end(2, None)
    assert len(lines()) == expected
    for line in lines():
        assert (line.levelno, line.getMessage()) == (logging.INFO, "request answered")
        assert fields(line) == {"outcome": "ok", "rows": 2}


def kinds_of(kind):
    """A class with all those below it."""
    return [kind, *(below for one in kind.__subclasses__() for below in kinds_of(one))]


@pytest.mark.parametrize("kind", [*kinds_of(LazuliError), ValueError])
@pytest.mark.parametrize("content", [False, True])
def test_no_kind_of_error_brings_its_message_into_the_log_unasked(lines, kind, content):
    settings = LogSettings(requests="all", content=content)
    Observer(settings).begin("", '{"instruction": "zebrafinch"}').end(1, 1, kind("text[0]: zebrafinch"))
    for formatter in (JsonFormatter({}, content=content), TextFormatter(content=content)):
        (line,) = map(formatter.format, lines())
        assert ("zebrafinch" in line) == content
        assert "\n" not in line


def test_the_message_of_an_error_only_if_it_is_asked_for(lines):
    Observer(LogSettings(requests="errors", content=True)).begin("", "").end(1, 1, InputError("text[0]: zebrafinch"))
    assert lines()[0].fields["error"] == "text[0]: zebrafinch"


def test_a_long_id_is_cut(lines):
    Observer(LogSettings(requests="all")).begin("x" * 5000, "").end(1, 1)
    assert lines()[0].fields["request_id"] == "x" * 100


@pytest.mark.parametrize("error", [None, InputError("no")])
def test_the_tracer_gets_what_belongs_to_a_trace(lines, error):
    tracer = Tracer()
    observer = Observer(LogSettings(), tracer)
    belonging, other = observer.begin("7", PARAMETERS), observer.begin("8", "")
    for trace in (belonging, other):
        trace.end(2, 9, error)
    ((request, ended, outcome, counts),) = tracer.traced
    assert request is belonging
    assert ended >= request.started
    assert (outcome, counts) == ("ok" if error is None else "InputError", {"rows": 2, "tokens": 9})
    observer.close()
    assert tracer.closed


def test_without_a_tracer_nothing_is_looked_at():
    observer = Observer(LogSettings())
    assert observer.begin("7", PARAMETERS).context == {}
    assert not observer.traces
    observer.close()


def test_each_traced_request_of_a_batch_notes_it_once():
    observer = Observer(LogSettings(), Tracer())
    traced, plain = SimpleNamespace(trace=observer.begin("", PARAMETERS)), SimpleNamespace(trace=None)
    step = Step(1.0, 2.0, 5, 50)
    note_step([SimpleNamespace(request=request) for request in (traced, plain, traced, plain, traced)], step)
    assert traced.trace.steps == [step]
