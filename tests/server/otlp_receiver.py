"""A collector of spans, as OpenTelemetry's exporters know it over HTTP, that keeps what it gets."""

import gzip
import http.server
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Span:
    """A span as it came over the wire; `resource` are the attributes of the process that made it."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    begin_ns: int
    end_ns: int
    attributes: dict
    failed: bool
    message: str
    resource: dict


class Receiver:
    """What came.

    Attributes:
        endpoint: For `OTEL_EXPORTER_OTLP_ENDPOINT`.
        bodies: Each message, as it is.
    """

    def __init__(self, port):
        self.endpoint = f"http://127.0.0.1:{port}"
        self.bodies = []

    @property
    def spans(self):
        messages = [ExportTraceServiceRequest.FromString(body) for body in list(self.bodies)]
        return [
            _read(span, resource.resource)
            for message in messages
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def wait(self, trace_id, *names, several=None, timeout_s=20.0):
        """The spans of a trace, once there are some of these very names, and any number of the one called `several`."""
        deadline = time.monotonic() + timeout_s
        while True:
            spans = [span for span in self.spans if span.trace_id == trace_id]
            if sorted(span.name for span in spans if span.name != several) == sorted(names):
                return spans
            assert time.monotonic() < deadline, [span.name for span in spans]
            time.sleep(0.05)


def _read(span, resource):
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span),
        span.status.code == Status.STATUS_CODE_ERROR,
        span.status.message,
        _attributes(resource),
    )


def _attributes(message):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in message.attributes}


@contextmanager
def receiving():
    """A receiver on a free port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.bodies.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
