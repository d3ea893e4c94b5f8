"""What the end of a malformed request may be.

An error has a code that says whose fault it is, and names what was wrong; an answer has the right shape and is finite.
What Triton 24.10 does otherwise is listed here, each with its reason: nothing else is let pass.
"""

import json
import math
import re

import grpc
import numpy as np

from .asks import DIMENSIONS
from .doors import CLOSED, SILENCE

CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.CANCELLED,  # a deadline that was asked for
    None,  # an error on a stream has no code
    *range(400, 500),
    501,
}
# Status -> messages that Triton 24.10 gives with it, and why neither configuration nor model can help.
FAULTS_OF_TRITON = {
    # gRPC itself refuses bytes that are no `ModelInferRequest`, or a string that is not UTF-8, before Triton sees them.
    grpc.StatusCode.INTERNAL: r"Unable to parse request",
    # Triton quotes names and ids whole, and gRPC takes no message of more than 16 kB.
    grpc.StatusCode.RESOURCE_EXHAUSTED: r"Stream removed \(received metadata size exceeds hard limit",
    # Errors of its JSON library have no code of their own in Triton, and count as its own: 500 in place of 400.
    500: r"failed to parse the request JSON buffer: |Unable to (parse|set) |failed to get request params"
    r"|attempt to (get|access) |parameter key '.*' was not found in the JSON",
}
# Messages of Triton that name no field, since none is at fault, or since its own code looked no further.
NAMELESS = re.compile(
    r"doesn't support models with decoupled transaction policy|Unable to parse request|Unable to parse JSON bytes array"
    # Paths that lead nowhere: an empty or impossible name of a model is part of the path.
    r"|^(<html><head>.*)?(Not Found|Method Not Allowed)|404 Not Found"
    # The backend hands all parameters over as one text.
    r"|^(in ensemble '.*', )?parameters: not valid UTF-8",
    re.DOTALL,
)
# Strings whose lengths do not add up, in Triton's words.
BROKEN_STRINGS = re.compile(
    r"(incomplete string data|incomplete string length indicator|string elements) .*inference input"
)
UNTYPED = re.compile(r"\bunexpected \w*(Error|Exception|Warning)\b|Traceback|std::|0x[0-9a-f]{8}")


def judge(ask, outcome):
    """Assert that a request which we know has ended as it may."""
    if not outcome.is_answer:
        judge_error(outcome, ask.words)
    elif outcome.outputs or outcome.status is grpc.StatusCode.OK:
        _judge_outputs(ask, outcome.outputs)
    else:
        judge_body(outcome)


def judge_error(outcome, words=None):
    """Assert that an error is typed and, where it is known what was wrong, that it names that."""
    assert outcome.status is not SILENCE, "it hangs"
    message = outcome.message
    fault = FAULTS_OF_TRITON.get(outcome.status)
    assert outcome.status in CODES or (fault and re.match(fault, message)), f"{outcome.status}: {message}"
    assert message, f"{outcome.status} without a message"
    assert not UNTYPED.search(message), message
    if words is not None and not fault and not NAMELESS.search(message) and not BROKEN_STRINGS.search(message):
        assert any(word.lower() in message.lower() for word in words), f"none of {words} in {message!r}"


def judge_body(outcome):
    """Assert that the JSON of an answer over HTTP is whole and finite; binary data may come behind it."""
    answer, _ = json.JSONDecoder(parse_constant=_refuse).raw_decode(outcome.text)
    values = [answer[name] for name in ("embedding", "score") if name in answer]
    values += [
        output["data"]
        for output in answer.get("outputs", [])
        if output["datatype"].startswith("FP") and "data" in output
    ]
    assert all(math.isfinite(value) for each in values for value in np.ravel(each)), answer


def judge_framing(outcome, *, waited):
    """Assert that what may not even be HTTP is refused, one way or the other."""
    if outcome.status == CLOSED or not waited:
        return
    if outcome.is_answer:
        judge_body(outcome)
    else:
        judge_error(outcome)


def _refuse(constant):
    raise AssertionError(f"{constant} in an answer")


def _judge_outputs(ask, parts):
    # Triton keeps 32 bits of a batch size, so that 2**53 + 1 rows are one.
    rows = ask.inputs[0].shape[0] % 2**32
    for name in {name for part in parts for name in part}:
        values = np.concatenate([part[name] for part in parts])
        # No rows but a text with them pass for one, whose answer has no dimension for rows.
        assert len(values) == rows or not rows, f"{name}: {len(values)} rows for {rows}"
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), name
        if name == "index" and rows:
            assert sorted(values[:, 0].tolist()) == list(range(rows))
        if name == "embedding" and values.dtype == np.float32 and rows:
            _judge_vectors(ask, values)


def _judge_vectors(ask, vectors):
    dimensions = ask.parameters.get("dimensions", DIMENSIONS)
    assert vectors.shape[1] == (dimensions[1] if isinstance(dimensions, tuple) else dimensions)
    if ask.parameters.get("normalize") is not False:
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
