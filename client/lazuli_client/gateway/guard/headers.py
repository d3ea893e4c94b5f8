"""What headers say of a request: its id, its trace and its deadline.

Takes raw headers, returns a `Call`.
"""

import random
import re
from collections.abc import Mapping

from lazuli_client.gateway.errors import ApiError, invalid
from lazuli_client.gateway.replicas.call import Call

# What may stand in logs.
_ID = re.compile(rb"[\w.:-]{1,128}", re.ASCII)
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(rb"[\x20-\x7e]{1,512}")
LEAST_TIMEOUT_S = 0.01
TIMEOUT_HEADER = b"x-request-timeout"
# The official OpenAI client says how long it will wait for an answer.
_CLIENT_TIMEOUT_HEADER = b"x-stainless-read-timeout"


def read_call(headers: Mapping[bytes, bytes], now: float, timeout_s: float) -> Call:
    """The request's own id, trace and deadline, as far as they are usable.

    Args:
        headers: Names in lower case.
        now: Time of the event loop.
        timeout_s: The longest that a request may take.
    """
    call = Call(_request_id(headers), now + timeout_s)
    if _TRACEPARENT.fullmatch(trace := headers.get(b"traceparent", b"")):
        call.context["traceparent"] = trace.decode()
        if _TRACESTATE.fullmatch(state := headers.get(b"tracestate", b"")):
            call.context["tracestate"] = state.decode()
    return call


def set_deadline(call: Call, headers: Mapping[bytes, bytes], now: float, timeout_s: float) -> None:
    """Take the deadline from the client, if it is an earlier one.

    Raises:
        ApiError: If the header is no number of seconds, or less than an answer can take.
    """
    given = headers.get(TIMEOUT_HEADER)
    seconds = timeout_s
    if given is not None:
        seconds = _seconds(given)
        if not seconds >= LEAST_TIMEOUT_S:  # NaN compares as false
            raise _bad_timeout(given)
    elif (told := headers.get(_CLIENT_TIMEOUT_HEADER)) is not None:
        read = _seconds(told)  # not ours to judge: "None" is a possible value
        seconds = read if read > 0 else timeout_s
    if seconds < timeout_s:
        call.deadline, call.has_deadline = now + seconds, True


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"")
    return given.decode() if _ID.fullmatch(given) else f"{random.getrandbits(64):016x}"


def _seconds(value: bytes) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")


def _bad_timeout(value: bytes) -> ApiError:
    shown = value[:40].decode("latin-1")
    return invalid(f"X-Request-Timeout: must be a number of seconds from {LEAST_TIMEOUT_S} on, got {shown!r}")
