import logging
import threading
import time

import pytest

from lazuli.logs.settings import LogSettings
from lazuli.metrics.recorder import Step
from lazuli.tracing.observer import Observer

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from lazuli.tracing import spans
from lazuli.tracing.spans import Tracer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARAMETERS = f'{{"traceparent": "00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}}'


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def make(exporter):
    """An observer whose spans go to the exporter."""

    def make(sampler=None):
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return Observer(LogSettings(), Tracer(provider, "engine"))

    return make


def test_an_answer_with_what_it_went_through(make, exporter):
    observer = make()
    before = time.time_ns()
    trace = observer.begin("7", PARAMETERS)
    trace.started = now = time.monotonic() - 0.5
    trace.steps += [Step(now + 0.2, now + 0.3, 4, 40), Step(now + 0.1, now + 0.35, 2, 20)]
    trace.end(3, 30)
    observer.close()
    by_name = {}
    for span in exporter.get_finished_spans():
        by_name.setdefault(span.name, []).append(span)
    ((engine,), (queue,), steps, (reply,)) = (by_name[name] for name in ("engine", "queue", "step", "reply"))
    assert {f"{span.context.trace_id:032x}" for spans in by_name.values() for span in spans} == {TRACE}
    assert (f"{engine.parent.span_id:016x}", engine.kind) == (PARENT, SpanKind.SERVER)
    assert engine.context.trace_state.to_header() == "a=b"
    expected = {"lazuli.rows": 3, "lazuli.tokens": 30, "lazuli.outcome": "ok", "lazuli.request_id": "7"}
    assert dict(engine.attributes) == expected
    assert engine.status.status_code is StatusCode.UNSET
    assert {span.parent.span_id for span in (queue, *steps, reply)} == {engine.context.span_id}
    assert [dict(step.attributes) for step in steps] == [
        {"lazuli.sequences": 2, "lazuli.tokens": 20},
        {"lazuli.sequences": 4, "lazuli.tokens": 40},
    ]
    milliseconds = [(span.end_time - span.start_time) / 1e6 for span in (queue, *steps, reply)]
    assert milliseconds[:3] == pytest.approx([100, 250, 100], abs=0.01)
    assert reply.start_time == steps[0].end_time  # the later one of both
    assert reply.end_time == engine.end_time
    assert engine.start_time == queue.start_time == pytest.approx(before - 5e8, abs=1e8)


def test_a_failure_has_its_kind_and_no_stage_that_was_not_reached(make, exporter):
    observer = make()
    observer.begin("", PARAMETERS).end(1, 2, ValueError("zebrafinch"))
    observer.close()
    (span,) = exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "Unexpected")
    assert "zebrafinch" not in span.to_json()


def test_a_step_that_goes_on_after_the_end_is_left_out(make, exporter):
    observer = make()
    trace = observer.begin("", PARAMETERS)
    trace.steps.append(Step(trace.started, trace.started + 3600, 1, 2))
    trace.end(1, 2, ValueError("given up"))
    observer.close()
    assert [span.name for span in exporter.get_finished_spans()] == ["engine"]


@pytest.mark.parametrize("traceparent", [f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"])
def test_a_parent_that_is_none_begins_no_trace(make, exporter, traceparent):
    observer = make()
    observer.begin("", f'{{"traceparent": "{traceparent}"}}').end(1, 2)
    observer.close()
    assert exporter.get_finished_spans() == ()


def test_what_is_not_sampled_is_left_out(make, exporter):
    observer = make(sampling.ALWAYS_OFF)
    observer.begin("", PARAMETERS).end(1, 2)
    observer.close()
    assert exporter.get_finished_spans() == ()


def test_a_provider_that_fails_ends_nothing(make, exporter, monkeypatch, caplog):
    observer = make()
    made, make_one = [], Tracer._make

    def fail_once(self, *ended):
        made.append(ended)
        if len(made) == 1:
            raise RuntimeError("no")
        make_one(self, *ended)

    monkeypatch.setattr(Tracer, "_make", fail_once)
    with caplog.at_level(logging.CRITICAL, logger="lazuli.tracing.spans"):
        for _ in range(2):
            observer.begin("", PARAMETERS).end(1, 2)
        observer.close()
    assert len(exporter.get_finished_spans()) == 1


def test_too_many_are_left_out_and_that_is_said_once(make, exporter, monkeypatch, caplog):
    monkeypatch.setattr(spans, "_MOST_WAITING", 2)
    observer, may_go_on, begun, make_one = make(), threading.Event(), threading.Event(), Tracer._make

    def wait(self, *ended):
        begun.set()
        assert may_go_on.wait(10)
        make_one(self, *ended)

    monkeypatch.setattr(Tracer, "_make", wait)
    observer.begin("", PARAMETERS).end(1, 2)
    assert begun.wait(10)
    for _ in range(5):
        observer.begin("", PARAMETERS).end(1, 2)
    may_go_on.set()
    observer.close()
    assert len(exporter.get_finished_spans()) == 3
    assert [record.levelname for record in caplog.records if "left out" in record.message] == ["WARNING"]


def test_what_waits_to_be_sent_is_sent_at_the_end(exporter):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
    observer = Observer(LogSettings(), Tracer(provider, "engine"))
    for _ in range(10):
        observer.begin("", PARAMETERS).end(1, 2)
    observer.close()
    assert len(exporter.get_finished_spans()) == 10


def test_a_provider_that_does_not_end_is_not_waited_for(monkeypatch, caplog):
    monkeypatch.setattr(spans, "_FLUSH_S", 0.05)
    released = threading.Event()

    class Provider(TracerProvider):
        def shutdown(self):
            assert released.wait(10)

    Tracer(Provider(shutdown_on_exit=False), "engine").close()
    assert "could not be sent within 0.05 s" in caplog.text
    released.set()
