"""Who hears of the requests of a model, and what they are told of each at its beginning.

Takes and returns `pb_utils` objects and ours. Nothing here may fail a request.
"""

import os
from collections.abc import Mapping
from typing import Any

from lazuli.logs.settings import LogSettings
from lazuli.tracing.observer import Observer
from lazuli.tracing.request_trace import RequestTrace
from lazuli.tracing.setup import make_tracer
from lazuli.triton.protocol import instance_name


def observe(span_name: str, args: Mapping[str, str]) -> Observer:
    """The observer of a model, as the environment wants it.

    Args:
        span_name: Of the span of a request.
        args: Of the model's `initialize`.

    Raises:
        ConfigError: If a variable for the log has a value that there is not.
    """
    ids = {"lazuli.model": args.get("model_name", ""), "lazuli.model_instance": instance_name(args)}
    return Observer(LogSettings.from_environment(os.environ), make_tracer(span_name, ids, os.environ))


def begin(observer: Observer, request: Any) -> RequestTrace:
    """A request came.

    Args:
        observer: Of the model.
        request: Triton's. It is not kept: its tensors are in shared memory.
    """
    try:
        request_id, parameters = request.request_id(), request.parameters()
    except UnicodeDecodeError:  # which is said to the caller where the parameters are read
        request_id = parameters = ""
    return observer.begin(request_id, parameters, _server_context(request) if observer.traces else None)


def _server_context(request: Any) -> str | None:
    """The context of the span that Triton itself has for the request, as JSON; with `mode=opentelemetry` it has one."""
    context: str | None = request.trace().get_context()
    return context
