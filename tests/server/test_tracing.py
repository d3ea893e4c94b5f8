"""The trace of a caller goes on in the server, and the log tells of requests without what they say."""

import asyncio
import json
import time

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli.repository.addition import Wish, add
from lazuli_client import AsyncLazuliClient, LazuliClient

from .wire import HttpError, grpc_infer, grpc_stream, http_generate, http_infer, post, text_input

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra `otel` is not installed")

from opentelemetry.sdk.trace import TracerProvider

from .otlp_receiver import receiving

SECRET = "zebrafinch4711"
# The steps of a request in an engine, below its span.
STAGES = ("queue", "step", "reply")
STEPS = ("tokenize", "engine", *STAGES)
PARENT = "b7ad6b7169203331"
# Models with faults that no request brings about otherwise: what they raise says what the request holds.
FAULTY_TOKENIZER = f"""
from lazuli.text_input import decode_texts
from lazuli.triton import protocol, tokenizer

class TritonPythonModel(tokenizer.TritonPythonModel):
    def _compute(self, request):
        texts = decode_texts(protocol.read_tensor(request, "text"))
        if texts[0].startswith("{SECRET} unexpected"):
            raise ValueError("cannot read " + texts[0]) from KeyError(texts[0])
        return super()._compute(request)
"""
FAULTY_ENGINE = """
from lazuli.triton import embedding

class TritonPythonModel(embedding.TritonPythonModel):
    def initialize(self, args):
        super().initialize(args)
        engine = self._service.engine
        step = engine.step

        def fail(batch):
            if len(batch.input_ids) > 100:
                raise RuntimeError("the device is gone")
            return step(batch)

        engine.step = fail
"""


@pytest.fixture(scope="module")
def collector():
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def traced(collector, tmp_path_factory):
    """A server that makes spans and logs all requests, with a model `faulty` beside the built-in one."""
    folder = tmp_path_factory.mktemp("traced")
    add(Wish("faulty", "all-MiniLM-L6-v2", folder / "added", door=Door.UNARY), lambda text: None)
    for step, source in (("tokenizer", FAULTY_TOKENIZER), ("embedding", FAULTY_ENGINE)):
        (folder / "added" / f"faulty.{step}" / "1" / "model.py").write_text(source)
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "LAZULI_LOG_REQUESTS": "all",
    }
    options = ServeOptions(model_repositories=("built-in", folder / "added"))
    with running_server(options, environment=environment, log_path=folder / "server.log") as running:
        yield running


@pytest.fixture
def caller():
    """The tracer of an application that uses the client."""
    return TracerProvider().get_tracer("application")


def new_context(flags="01"):
    """Of a caller that has no library for it: the id of its trace, and its `traceparent`."""
    trace_id = np.random.default_rng().bytes(16).hex()
    return trace_id, f"00-{trace_id}-{PARENT}-{flags}"


def check_tree(spans, parent_id, *, rows, tokens):
    """One request through tokenizer and engine: each span below the right one, and in its time."""
    tokenize, engine, queue, step, reply = (next(span for span in spans if span.name == name) for name in STEPS)
    assert (tokenize.parent_id, engine.parent_id) == (parent_id, parent_id)
    assert {span.parent_id for span in (queue, step, reply)} == {engine.span_id}
    assert tokenize.begin_ns <= tokenize.end_ns
    assert tokenize.begin_ns <= engine.begin_ns == queue.begin_ns
    assert queue.end_ns == step.begin_ns < step.end_ns == reply.begin_ns <= reply.end_ns == engine.end_ns
    for span in (tokenize, engine):
        span.attributes.pop("lazuli.request_id", "")  # streams of our client have some
    assert tokenize.attributes == {"lazuli.rows": rows, "lazuli.outcome": "ok"}
    assert engine.attributes == {"lazuli.rows": rows, "lazuli.tokens": tokens, "lazuli.outcome": "ok"}
    assert not any(span.failed for span in spans)
    assert {span.resource["service.name"] for span in spans} == {"lazuli"}
    assert tokenize.resource["lazuli.model"] == "tokenizer"


def embed(**arguments):
    with LazuliClient(**arguments) as client:
        client.embed(["one", "two words"])


def embed_in_other_threads(**arguments):
    with LazuliClient(**arguments, rows_per_request=2, max_in_flight=1) as client:
        list(client.embed_batches([["one", "two words"]]))


def embed_stream(**arguments):
    with LazuliClient(**arguments) as client:
        list(client.embed_iter(["one", "two words"]))


def embed_async(**arguments):
    async def run():
        async with AsyncLazuliClient(**arguments) as client:
            await client.embed(["one", "two words"])

    asyncio.run(run())


CALLS = {
    "grpc": (embed, "grpc"),
    "grpc-in-other-threads": (embed_in_other_threads, "grpc"),
    "grpc-stream": (embed_stream, "grpc"),
    "grpc-async": (embed_async, "grpc"),
    "http": (embed, "http"),
    "http-async": (embed_async, "http"),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_span_of_a_caller_is_above_those_of_the_server(traced, collector, caller, name):
    call, protocol = CALLS[name]
    with caller.start_as_current_span("application") as span:
        call(url=getattr(traced, protocol), protocol=protocol)
    context = span.get_span_context()
    spans = collector.wait(f"{context.trace_id:032x}", *STEPS)
    check_tree(spans, f"{context.span_id:016x}", rows=2, tokens=7)


def by_grpc_header(server, traceparent):
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.infer("embed", [text_input(triton_grpc, ["one", "two words"])], headers={"traceparent": traceparent})


def by_http_header(server, traceparent):
    with triton_http.InferenceServerClient(server.http) as client:
        client.infer("embed", [text_input(triton_http, ["one", "two words"])], headers={"Traceparent": traceparent})


def by_key_of_generate(server, traceparent):
    http_generate(server, ["one", "two words"], traceparent=traceparent)


@pytest.mark.parametrize("call", [by_grpc_header, by_http_header, by_key_of_generate])
def test_a_caller_without_our_client(traced, collector, call):
    trace_id, traceparent = new_context()
    call(traced, traceparent)
    check_tree(collector.wait(trace_id, *STEPS), PARENT, rows=2, tokens=7)


def test_a_request_of_several_batches_has_a_step_for_each(traced, collector):
    trace_id, traceparent = new_context()
    grpc_stream(traced, ["word " * 250] * 20, traceparent=traceparent)
    spans = collector.wait(trace_id, "tokenize", "engine", "queue", "reply", several="step")
    steps = [span for span in spans if span.name == "step"]
    assert 3 <= len(steps) <= 20  # the more, the more queries have just come
    assert sum(span.attributes["lazuli.sequences"] for span in steps) == 20
    assert sum(span.attributes["lazuli.tokens"] for span in steps) == 20 * 252


@pytest.mark.parametrize(("text", "outcome"), [("word " * 300, "InputError"), (f"{SECRET} unexpected", "Unexpected")])
def test_what_the_tokenizer_refuses_is_an_error_there(traced, collector, text, outcome):
    trace_id, traceparent = new_context()
    with pytest.raises(InferenceServerException):
        grpc_infer(traced, [text], model="faulty", traceparent=traceparent)
    (span,) = collector.wait(trace_id, "tokenize")
    assert (span.failed, span.message) == (True, outcome)
    assert span.attributes == {"lazuli.rows": 1, "lazuli.outcome": outcome}


def test_a_failure_of_the_device_is_an_error_of_the_engine(traced, collector):
    trace_id, traceparent = new_context()
    with pytest.raises(InferenceServerException, match="the device is gone"):
        grpc_infer(traced, ["word " * 200], model="faulty", traceparent=traceparent)
    spans = {span.name: span for span in collector.wait(trace_id, "tokenize", "engine")}
    assert not spans["tokenize"].failed
    assert (spans["engine"].failed, spans["engine"].message) == (True, "DeviceError")


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", f"00-{'0' * 32}-{PARENT}-01", new_context("00")[1]])
def test_who_asks_for_no_trace_has_none(traced, collector, traceparent):
    """Or in a way that cannot be read, which is no fault of the request."""
    before = len(collector.spans)
    options = {} if traceparent is None else {"traceparent": traceparent}
    grpc_infer(traced, ["one"], **options)
    trace_id, after = new_context()
    grpc_infer(traced, ["one"], traceparent=after)
    collector.wait(trace_id, *STEPS)
    assert len(collector.spans) == before + len(STEPS)


def log_lines(server):
    """What models said, in order, as far as it is there."""
    text = server.log_path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"time": ')]


def logged(server, trace_id, count, timeout_s=10.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        lines = [line for line in log_lines(server) if line.get("trace_id") == trace_id]
        if len(lines) == count:
            return lines
        time.sleep(0.05)
    raise AssertionError(lines)


def test_a_line_for_each_step_of_a_request(traced):
    trace_id, traceparent = new_context()
    with triton_grpc.InferenceServerClient(traced.grpc) as client:
        inputs = [text_input(triton_grpc, ["one", "two words"])]
        client.infer("embed", inputs, request_id="mine", parameters={"traceparent": traceparent})
    for line, model in zip(logged(traced, trace_id, 2), ("tokenizer", "embedding"), strict=True):
        assert (line["event"], line["level"], line["model"]) == ("request answered", "info", model)
        assert (line["request_id"], line["outcome"], line["rows"]) == ("mine", "ok", 2)
        assert line.get("tokens") == (7 if model == "embedding" else None)
        assert 0 < line["duration_ms"] < 60_000
        assert line["time"].endswith("Z")


def test_a_request_that_failed_is_told_by_its_kind(traced):
    trace_id, traceparent = new_context()
    with pytest.raises(InferenceServerException):
        grpc_infer(traced, ["word " * 300], traceparent=traceparent)
    (line,) = logged(traced, trace_id, 1)
    assert (line["event"], line["level"], line["outcome"]) == ("request failed", "warning", "InputError")
    assert "error" not in line


def test_an_unexpected_error_is_told_with_its_calls_and_without_its_message(traced):
    before = len(log_lines(traced))
    with pytest.raises(InferenceServerException):
        grpc_infer(traced, [f"{SECRET} unexpected"], model="faulty")
    (line,) = [line for line in log_lines(traced)[before:] if line["event"] == "unexpected error"]
    kinds = [row for row in line["exception"] if not row.startswith(" ")]
    assert kinds == ["KeyError", "ValueError"]
    assert any(row.endswith("_compute") for row in line["exception"])


def over_1024_rows(server):
    grpc_infer(server, [SECRET] * 1025)


def of_another_type(server):
    with triton_http.InferenceServerClient(server.http) as client:
        tensor = triton_http.InferInput("text", [1, 1], "INT32")
        tensor.set_data_from_numpy(np.ones((1, 1), dtype=np.int32))
        client.infer("embed", [tensor], parameters={"instruction": SECRET})


FAILURES = {
    "too-long": lambda server: grpc_infer(server, [f"{SECRET} " * 300]),
    "not-utf-8": lambda server: grpc_infer(server, [SECRET.encode() + b"\xff"]),
    "empty": lambda server: grpc_infer(server, [SECRET, ""], truncate=SECRET),
    "unknown-option": lambda server: grpc_infer(server, ["a"], **{SECRET: 1}),
    "unknown-prompt": lambda server: grpc_infer(server, ["a"], prompt_name=SECRET),
    "bad-value": lambda server: grpc_infer(server, [SECRET], dimensions=SECRET),
    "option-of-the-engine": lambda server: grpc_infer(server, [SECRET], dimensions=99_999),
    "two-prompts": lambda server: grpc_infer(server, ["a"], instruction=SECRET, prompt_name=SECRET),
    "late": lambda server: grpc_infer(server, [f"{SECRET} " * 30] * 1024, deadline_ms=1),
    "unexpected": lambda server: grpc_infer(server, [f"{SECRET} unexpected"], model="faulty"),
    "device": lambda server: grpc_infer(server, [f"{SECRET} " * 30] * 4, model="faulty"),
    "http": lambda server: http_infer(server, [f"{SECRET} " * 300]),
    "stream": lambda server: grpc_stream(server, [f"{SECRET} " * 300]),
    "broken-json": lambda server: post(server, "/v2/models/embed/generate", f'{{"text": "{SECRET}"'.encode()),
    "nested-json": lambda server: post(server, "/v2/models/embed/generate", {"text": {SECRET: SECRET}}),
    "broken-infer": lambda server: post(server, "/v2/models/embed/infer", {"inputs": [{"name": SECRET}]}),
    "rows": over_1024_rows,
    "type": of_another_type,
}


def test_no_text_in_the_log_nor_in_spans_whatever_fails(traced, collector):
    for fail in FAILURES.values():
        with pytest.raises((InferenceServerException, HttpError)):
            fail(traced)
    trace_id, traceparent = new_context()
    grpc_infer(traced, [SECRET], instruction=SECRET, traceparent=traceparent)
    collector.wait(trace_id, *STEPS)
    logged(traced, trace_id, 2)
    outcomes = {line["outcome"] for line in log_lines(traced) if line["event"] == "request failed"}
    assert {"InputError", "OptionError", "DeadlineExceededError", "Unexpected", "DeviceError"} <= outcomes
    assert SECRET not in traced.log_path.read_text(encoding="utf-8")
    assert all(SECRET.encode() not in body for body in collector.bodies)


def test_a_collector_that_is_gone_harms_nobody(tmp_path):
    with receiving() as receiver:
        gone = receiver.endpoint
    options = ServeOptions(door=Door.UNARY)
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": gone, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with running_server(options, environment=environment, log_path=tmp_path / "log") as running:
        for _ in range(20):
            grpc_infer(running, ["one"], traceparent=new_context()[1])
        assert running.process.stop(options.exit_timeout_s)
