import subprocess
import sys
import threading

import pytest

from lazuli_client import codec
from lazuli_client.request import text_request
from lazuli_client.tracing import current_context

WITHOUT_A_SPAN = """
import sys
import lazuli_client.request
request = lazuli_client.request.text_request("embed", ["a"], {"truncate": "end"}, [0])
assert request.sent_parameters == {"truncate": "end"}
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


def test_without_opentelemetry_nothing_is_imported_and_nothing_sent():
    subprocess.run([sys.executable, "-c", WITHOUT_A_SPAN], check=True)


class TestInASpan:
    @pytest.fixture
    def tracer(self):
        pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
        from opentelemetry.sdk.trace import TracerProvider

        return TracerProvider(shutdown_on_exit=False).get_tracer("application")

    @pytest.fixture
    def traceparent(self, tracer):
        with tracer.start_as_current_span("application") as span:
            context = span.get_span_context()
            yield f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def test_it_is_named_by_the_w3c(self, traceparent):
        assert current_context() == {"traceparent": traceparent}

    def test_outside_there_is_none(self, tracer):
        with tracer.start_as_current_span("application"):
            pass
        assert current_context() == {}

    def test_a_request_has_that_of_where_it_was_made(self, traceparent):
        request = text_request("embed", ["a"], {"truncate": "end"}, [0])
        assert request.parameters == {"truncate": "end"}
        sent = []
        thread = threading.Thread(target=lambda: sent.append(codec.to_grpc(request)))
        thread.start()
        thread.join()
        assert sent[0].parameters["traceparent"].string_param == traceparent
        assert sent[0].parameters["truncate"].string_param == "end"
