import pytest

from lazuli_client.errors import (
    ClosedError,
    ConnectionFailedError,
    DeadlineError,
    InputTypeError,
    InvalidInputError,
    LazuliError,
    ModelNotFoundError,
    ServerError,
    UnavailableError,
    UnsupportedError,
    from_grpc_status,
    from_http_status,
    from_stream_message,
)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("INVALID_ARGUMENT", "text[0]: bad", InvalidInputError),
        ("UNAVAILABLE", "[request id: 1] Exceeds maximum queue size", UnavailableError),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: ...", ConnectionFailedError),
        ("UNAVAILABLE", "Socket closed", ConnectionFailedError),
        ("UNAVAILABLE", "the engine is stopping", UnavailableError),
        ("CANCELLED", "[request id: 3] timed out: 12 ms", DeadlineError),
        ("CANCELLED", "in ensemble 'embed', timed out: 12 ms", DeadlineError),
        ("CANCELLED", "in ensemble 'embed', [request id: 3] timed out: 12 ms", DeadlineError),
        ("CANCELLED", "the call was cancelled", ServerError),
        ("INVALID_ARGUMENT", "text[0]: not timed out: at all", InvalidInputError),
        ("INTERNAL", "Internal error from Core", ConnectionFailedError),
        ("INTERNAL", "unexpected KeyError: Internal error from Core", ServerError),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", DeadlineError),
        ("NOT_FOUND", "Request for unknown model: 'x' is not found", ModelNotFoundError),
        ("NOT_FOUND", "Request for unknown model: 'x' has no available versions", UnavailableError),
        ("UNIMPLEMENTED", "ModelInfer RPC doesn't support models with decoupled policy", UnsupportedError),
        (
            "UNAVAILABLE",
            "DNS resolution failed for nowhere:1: C-ares status is not ARES_SUCCESS",
            ConnectionFailedError,
        ),
        ("UNAVAILABLE", "errors resolving x:1: [field:hostname lookup error:not found]", ConnectionFailedError),
        ("INTERNAL", "in ensemble 'embed', Stub process 'embedding_0_0' is not healthy.", UnavailableError),
        ("INTERNAL", "Stub process is not healthy.", UnavailableError),
        ("INVALID_ARGUMENT", "prompt_name: 'Stub process is not healthy' is not known", InvalidInputError),
        ("INTERNAL", "out of memory", ServerError),
        ("CANCELLED", "Channel closed!", ServerError),
    ],
)
def test_grpc_status(code, message, kind):
    error = from_grpc_status(code, message)
    assert type(error) is kind
    assert message in str(error)
    assert error.code == code


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInputError),
        (404, ModelNotFoundError),
        (429, UnavailableError),
        (500, ServerError),
        (501, UnsupportedError),
        (503, UnavailableError),
        (504, DeadlineError),
        (418, ServerError),
    ],
)
def test_http_status(status, kind):
    error = from_http_status(status, "words of the server")
    assert type(error) is kind
    assert (str(error), error.code) == ("words of the server", str(status))
    assert str(status) in str(from_http_status(status, ""))


@pytest.mark.parametrize(
    "frame", ["", "in ensemble 'embed', ", "[request id: 3] ", "in ensemble 'x', [request id: 3] "]
)
def test_a_deadline_over_http_is_known_by_its_words(frame):
    """Triton's HTTP has no status for it: it says 400."""
    assert type(from_http_status(400, frame + "timed out: the deadline of 9 ms was over")) is DeadlineError
    assert type(from_http_status(400, frame + "text[0]: timed out: a text's own words")) is InvalidInputError


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[request id: 7] Exceeds maximum queue size", UnavailableError),
        ("Request for unknown model: 'x' has no available versions", UnavailableError),
        ("the engine is shutting down", UnavailableError),
        ("in ensemble 'x', Stub process 'embedding_0_0' is not healthy.", UnavailableError),
        ("prompt_name: 'Stub process is not healthy' is not known", InvalidInputError),
        (
            'text[1]: 300 tokens, but at most 256 are allowed; shorten it or pass truncate="end"',
            InvalidInputError,
        ),
        ("text[2]: not valid UTF-8, byte 0xff at offset 0", InvalidInputError),
        ("unknown parameter 'foo'; known: dimensions", InvalidInputError),
        ("dimensions: 999, but the model's vectors have 384", InvalidInputError),
        ("prompt_name: 'x' is not known; this model has no prompts", InvalidInputError),
        ("prompt_name and instruction: only one of them can be given", InvalidInputError),
        ("[request id: 1] inference request batch-size must be <= 1024 for 'embed'", InvalidInputError),
        ("in ensemble 'embed_stream', text[0]: no token is left of it", InvalidInputError),
        ("in ensemble 'x', [request id: 4] prompt_name: 'unavailable' is not known", InvalidInputError),
        ("embedding[0]: the model computed NaN or Inf, so there is no usable vector", ServerError),
        ("embedding_float16[3]: a value is beyond 65504, the largest of float16", ServerError),
        (
            "output: int8 needs the range of each dimension over typical texts, and this model was not",
            InvalidInputError,
        ),
        ("force_dimensions: must be true or false, got 1", InvalidInputError),
        ("the forward pass failed: device unavailable", ServerError),
        ("Request timeout expired", DeadlineError),
        ("Failed to process the request(s) for model 'x'", ServerError),
    ],
)
def test_stream_message(message, kind):
    error = from_stream_message(message)
    assert type(error) is kind
    assert str(error) == message


def test_a_model_that_is_loading_is_not_missing():
    message = "Request for unknown model: 'x' has no available versions"
    assert type(from_http_status(404, message)) is UnavailableError


def test_renumbered_gives_rows_of_the_callers_input():
    error = InvalidInputError("text[1]: too long; embedding[0], embedding_int8[0]", code="400").renumbered([640, 700])
    assert str(error) == "text[700]: too long; embedding[640], embedding_int8[640]"
    assert (error.row, error.code, type(error)) == (700, "400", InvalidInputError)


def test_renumbered_leaves_other_brackets_and_rows_out_of_range_alone():
    error = ServerError("context[1] and text[9] of [request id: 3]").renumbered([5, 6])
    assert str(error) == "context[1] and text[9] of [request id: 3]"
    assert error.row is None


def test_errors_are_also_the_builtin_kind():
    assert issubclass(InvalidInputError, ValueError)
    assert issubclass(DeadlineError, TimeoutError)
    assert issubclass(ConnectionFailedError, ConnectionError)
    assert all(issubclass(kind, LazuliError) for kind in (ServerError, UnsupportedError, ModelNotFoundError))


def test_a_dead_model_process_over_http_is_retried():
    assert type(from_http_status(500, "Stub process 'embedding_0_0' is not healthy.")) is UnavailableError


@pytest.mark.parametrize(
    "error",
    [
        from_grpc_status("NOT_FOUND", "Request for unknown model: 'embed' is not found"),
        from_http_status(404, "Request for unknown model: 'embed' is not found"),
        from_stream_message("Request for unknown model: 'embed' is not found"),
    ],
)
def test_a_missing_model_hints_at_the_door(error):
    assert type(error) is ModelNotFoundError
    assert str(error).startswith("Request for unknown model: 'embed' is not found; ")
    assert "lazuli serve --door both" in str(error)


def test_new_kinds_are_also_the_builtin_kind():
    assert issubclass(InputTypeError, InvalidInputError)
    assert issubclass(InputTypeError, TypeError)
    assert issubclass(ClosedError, RuntimeError)
    assert "closed" in str(ClosedError())
    assert str(ClosedError().renumbered([1])) == str(ClosedError())
