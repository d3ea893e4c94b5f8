import sys

import pytest

from lazuli.tracing.setup import make_tracer, wants_traces

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", **ENDPOINT}, False),
        ({"OTEL_SDK_DISABLED": "true", **ENDPOINT}, False),
        ({"OTEL_SDK_DISABLED": "TRUE", **ENDPOINT}, False),
        ({"OTEL_SDK_DISABLED": "false", **ENDPOINT}, True),
    ],
)
def test_spans_are_wanted_if_an_exporter_is_named(environ, expected):
    assert wants_traces(environ) == expected


def test_without_that_nothing_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "lazuli.tracing.spans", None)  # to import it would raise
    assert make_tracer("engine", {}, {}) is None


def test_without_the_packages_it_is_said_what_to_install(monkeypatch, caplog):
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "lazuli.tracing.spans"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert make_tracer("engine", {}, ENDPOINT) is None
    assert "no traces of this model" in caplog.text
    assert "pip install 'lazuli[otel]'" in caplog.text


class TestWithThePackages:
    @pytest.fixture(autouse=True)
    def packages(self):
        pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
        pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra `otel` is not installed")

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: 'zipkin', but it must be otlp or none"),
            ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "'http/json', but it must be one of http/protobuf, grpc"),
        ],
    )
    def test_what_there_is_not_is_said_and_serving_goes_on(self, caplog, more, reason):
        assert make_tracer("engine", {}, ENDPOINT | more) is None
        assert reason in caplog.text

    @pytest.mark.parametrize(
        ("more", "name"),
        [
            ({}, "lazuli"),
            ({"OTEL_SERVICE_NAME": "search"}, "search"),
            ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=search,zone=a"}, "search"),
        ],
    )
    def test_who_makes_the_spans(self, monkeypatch, more, name):
        environ = ENDPOINT | more
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        tracer = make_tracer("engine", {"lazuli.model": "embedding"}, environ)
        attributes = tracer._provider.resource.attributes
        assert attributes["service.name"] == name
        assert attributes["lazuli.model"] == "embedding"
        assert attributes.get("zone") == ("a" if "OTEL_RESOURCE_ATTRIBUTES" in more else None)
        tracer.close()
