"""The trace that a request belongs to, as its caller says in the way of the W3C (`traceparent`, `tracestate`).

Takes the JSON text of request parameters, among which the context travels: Triton hands those to every step of an
ensemble, but no headers unless it is told to make parameters of them. Knows nothing of spans.
"""

import json
import re

_NAMES = ("traceparent", "tracestate")
# In the name of the one that counts, as headers are capitalised. Most requests hold it nowhere.
HINT = "arent"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def is_context(name: str) -> bool:
    """Whether a parameter is none of a task."""
    return name.lower() in _NAMES


def without_context(parameters: str) -> str:
    """The parameters without the context, which differs from request to request where nothing else does.

    Whoever calls this often looks for `HINT` first.
    """
    values: dict[str, object] = json.loads(parameters)
    return json.dumps({name: value for name, value in values.items() if not is_context(name)})


def read_context(parameters: str, of_server: str | None = None) -> dict[str, str]:
    """The context; empty if the request has none, or one that is malformed: tracing never fails a request.

    Args:
        parameters: Of the request.
        of_server: JSON of the context of a span of the server itself, if it makes some. That is nearer than what the
            caller said, if it is of the same trace.
    """
    given = _from_json(parameters) if HINT in parameters else {}
    near = _from_json(of_server) if of_server else {}
    if near and (not given or trace_id(near) == trace_id(given)):
        return near
    return given


def trace_id(context: dict[str, str]) -> str | None:
    """The trace, 32 hexadecimal digits; None for an empty context."""
    match = _TRACEPARENT.fullmatch(context.get("traceparent", ""))
    return match[1] if match else None


def _from_json(text: str) -> dict[str, str]:
    values: dict[str, object] = json.loads(text)
    # A header in its own spelling and a parameter may both be there: the last one counts.
    context = {name.lower(): value for name, value in values.items() if is_context(name) and isinstance(value, str)}
    return context if trace_id(context) else {}
