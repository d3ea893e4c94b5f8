"""The trace that a caller is in, as the server is told of it.

Takes nothing, returns request parameters. Knows OpenTelemetry's API and no SDK; makes no spans.
"""

import sys


def current_context() -> dict[str, str]:
    """The caller's current span by the W3C's names `traceparent` and `tracestate`; empty if it has none.

    Nothing is imported for it: whoever has a span has imported OpenTelemetry.
    """
    context: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(context)
    return context
