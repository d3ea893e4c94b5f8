"""Whether spans are wanted, and where they go: as the environment says, by the variables of OpenTelemetry.

Takes variables, returns a tracer or None. What `OTEL_...` variables mean is left to the SDK but for those that say
whether and by what to export. The SDK is in the extra `otel`, and is imported only if spans are wanted.
"""

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazuli.tracing.spans import Tracer

_log = logging.getLogger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTERS = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
}
_SERVICE_NAME = "lazuli"


def wants_traces(environ: Mapping[str, str]) -> bool:
    """Whether spans are to be exported: an exporter is named, or an address, and nothing says no."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    named = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    return named != "none" if named else any(environ.get(name) for name in _ENDPOINTS)


def make_tracer(span_name: str, ids: Mapping[str, str], environ: Mapping[str, str]) -> "Tracer | None":
    """A tracer, if spans are wanted and can be exported; what is served does not depend on them.

    Args:
        span_name: As of `Tracer`.
        ids: Attributes of all spans.
        environ: The environment, which must be that of the process: the SDK reads that.
    """
    if not wants_traces(environ):
        return None
    try:
        from lazuli.tracing.spans import Tracer

        return Tracer(_make_provider(ids, environ), span_name)
    except ImportError as error:
        _log.warning("no traces of this model: %s; pip install 'lazuli[otel]' brings what they need", error)
    except Exception as error:
        _log.warning("no traces of this model: %s", error)
    return None


def _make_provider(ids: Mapping[str, str], environ: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create(dict(ids))
    if not (environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")):
        resource = resource.merge(Resource({SERVICE_NAME: _SERVICE_NAME}))
    # The interpreter of a model may end without calling what is registered for its exit, and must not wait there.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_make_exporter(environ)))
    return provider


def _make_exporter(environ: Mapping[str, str]) -> Any:
    name = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if name != "otlp":
        raise ValueError(f"OTEL_TRACES_EXPORTER: {name!r}, but it must be otlp or none")
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    if protocol not in _EXPORTERS:
        raise ValueError(f"{_PROTOCOLS[-1]}: {protocol!r}, but it must be one of {', '.join(_EXPORTERS)}")
    return import_module(_EXPORTERS[protocol]).OTLPSpanExporter()
