"""What an observer hears of the requests of a model, over a stand-in for Triton."""

import json

import numpy as np
import pytest

from lazuli.errors import ConfigError
from lazuli.logs.settings import LogSettings
from lazuli.tracing.observer import Observer

TRACE = "0af7651916cd43dd8448eb211c80319c"
FAR, NEAR = f"00-{TRACE}-b7ad6b7169203331-01", f"00-{TRACE}-00f067aa0ba902b7-01"


class Tracer:
    def __init__(self):
        self.traced, self.closed = [], False

    def trace(self, request, ended, outcome, counts):
        self.traced.append((request, outcome, counts))

    def close(self):
        self.closed = True


@pytest.fixture
def tracer():
    return Tracer()


@pytest.fixture
def observed(load, arguments, tracer, monkeypatch):
    """Start a model whose observer has the tracer."""
    models = []

    def start(module, decoupled=None, **parameters):
        loaded = load(module)
        base = load("answering" if module == "tokenizer" else "engine_model")
        monkeypatch.setattr(base, "observe", lambda name, args: Observer(LogSettings(), tracer))
        model = loaded.TritonPythonModel()
        model.initialize(arguments(decoupled=decoupled, **parameters))
        models.append(model)
        return model

    yield start
    for model in models:
        if not tracer.closed:
            model.finalize()


@pytest.fixture
def start_engine(observed, tmp_path, write_bert):
    checkpoint = str(write_bert(tmp_path, max_position_embeddings=128))
    parameters = {"checkpoint": checkpoint, "device": "cpu", "dtype": "float32", "token_budget": "16"}
    return lambda decoupled=None: observed("embedding", decoupled, **parameters)


@pytest.fixture
def start_tokenizer(observed):
    return lambda: observed("tokenizer", checkpoint="all-MiniLM-L6-v2", max_seq_length="8")


def answer(model, *requests):
    """Answer requests, and let all threads end: what they tell comes after their last word."""
    if model.execute(list(requests)) is None:
        for request in requests:
            request.wait()
    model.finalize()


def ask(pb_utils, *lengths, **parameters):
    width = max(lengths)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int8)
    ids = np.full(mask.shape, 7, dtype=np.int32)
    return pb_utils.Request({"traceparent": FAR, **parameters}, request_id="7", input_ids=ids, attention_mask=mask)


@pytest.mark.parametrize("decoupled", [False, True])
def test_an_engine_tells_of_a_request_with_its_batches(start_engine, tracer, pb_utils, decoupled):
    answer(start_engine(decoupled), ask(pb_utils, 16, 3, 16, 9), ask(pb_utils, 16))
    by_rows = {counts["rows"]: (trace, outcome, counts) for trace, outcome, counts in tracer.traced}
    trace, outcome, counts = by_rows[4]
    assert (outcome, counts) == ("ok", {"rows": 4, "tokens": 44})
    assert (trace.request_id, trace.context) == ("7", {"traceparent": FAR})
    assert len(trace.steps) >= 3  # of 16 tokens each
    assert all(trace.started <= step.started < step.arrived for step in trace.steps)
    assert by_rows[1][1:] == ("ok", {"rows": 1, "tokens": 16})


def test_a_refused_request_is_told_too(start_engine, tracer, pb_utils):
    answer(start_engine(), ask(pb_utils, 3, dimensions=99))
    ((trace, outcome, counts),) = tracer.traced
    assert (outcome, counts) == ("OptionError", {"rows": 1, "tokens": 3})
    assert trace.steps == []


def test_texts_that_are_split_have_the_trace_too(start_engine, tracer, pb_utils):
    request = ask(pb_utils, 6, 6)
    request.tensors["attention_mask"][0, 3] = 2  # a further chunk begins there
    answer(start_engine(), request)
    ((trace, outcome, _),) = tracer.traced
    assert outcome == "ok"
    assert sum(step.sequences for step in trace.steps) == 3


def test_without_a_tracer_steps_are_not_noted(start_engine, tracer, pb_utils, monkeypatch):
    model, observer, seen = start_engine(), Observer(LogSettings()), []
    monkeypatch.setattr(observer, "ended", lambda trace, *rest: seen.append(trace))
    model._observer, model._service.recorder.traces = observer, False
    answer(model, ask(pb_utils, 3))
    tracer.closed = True  # the model is
    assert [(trace.steps, trace.context) for trace in seen] == [([], {})]


def test_a_tokenizer_tells_of_answers_and_failures(start_tokenizer, tracer, pb_utils):
    texts = [np.array([[text]], dtype=np.object_) for text in (b"hello", b"\xff")]
    answer(start_tokenizer(), *(pb_utils.Request({"traceparent": FAR}, text=text) for text in texts))
    assert sorted((outcome, counts["rows"]) for _, outcome, counts in tracer.traced) == [("InputError", 1), ("ok", 1)]
    assert tracer.closed


def test_a_span_of_the_server_is_the_parent(start_tokenizer, tracer, pb_utils):
    text = np.array([[b"hello"]], dtype=np.object_)
    context = json.dumps({"traceparent": NEAR})
    answer(start_tokenizer(), pb_utils.Request({"traceparent": FAR}, text=text, server_context=context))
    assert tracer.traced[0][0].context == {"traceparent": NEAR}


class TestBegin:
    @pytest.fixture
    def begin(self, load):
        return load("observing").begin

    @pytest.mark.parametrize("broken", ["request_id", "parameters"])
    def test_what_is_not_unicode_fails_nothing(self, begin, pb_utils, monkeypatch, tracer, broken):
        request = pb_utils.Request({"traceparent": FAR}, request_id="7")
        monkeypatch.setattr(request, broken, lambda: b"\xff".decode())
        trace = begin(Observer(LogSettings(), tracer), request)
        assert (trace.request_id, trace.context) == ("", {})

    def test_the_server_is_not_asked_without_a_tracer(self, begin, pb_utils, monkeypatch):
        request = pb_utils.Request({"traceparent": FAR}, request_id="7")
        monkeypatch.setattr(request, "trace", None)
        assert begin(Observer(LogSettings()), request).request_id == "7"


class TestObserve:
    def test_as_the_environment_wants_it(self, load, monkeypatch):
        monkeypatch.setenv("LAZULI_LOG_REQUESTS", "all")
        observer = load("observing").observe("engine", {"model_name": "embedding"})
        assert observer._settings.requests == "all"
        assert not observer.traces

    def test_a_bad_variable_is_an_error_at_start(self, load, monkeypatch):
        monkeypatch.setenv("LAZULI_LOG_REQUESTS", "some")
        with pytest.raises(ConfigError, match="LAZULI_LOG_REQUESTS"):
            load("observing").observe("engine", {})
