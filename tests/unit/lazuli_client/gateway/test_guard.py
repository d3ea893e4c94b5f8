"""Keys, limits, ids and deadlines, each where it is decided; `test_app.py` has them together."""

import pytest

from lazuli_client.gateway.errors import ApiError
from lazuli_client.gateway.guard.headers import read_call, set_deadline
from lazuli_client.gateway.guard.keys import Keys
from lazuli_client.gateway.guard.rate import Rate

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("headers", "is_known"),
    [
        ({b"authorization": b"Bearer first-key"}, True),
        ({b"authorization": b"bearer  second-key "}, True),
        ({b"x-api-key": b"first-key"}, True),
        ({b"api-key": b"second-key"}, True),
        ({b"authorization": b"Bearer first-ke"}, False),
        ({b"authorization": b"Bearer "}, False),
        ({b"authorization": b"Basic first-key"}, False),
        ({b"x-api-key": b"\xff\xfe"}, False),
        ({}, False),
    ],
)
def test_a_key_opens(headers, is_known):
    keys = Keys(["first-key", "second-key"])
    name = keys.name_of(headers)
    assert (name is not None) == is_known
    assert name is None or "key" not in name


def test_keys_come_from_a_file_and_the_environment(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# of the search team\nfile-key-1\n\n  file-key-2\n  # retired-key\n")
    keys = Keys.read(str(path), {"LAZULI_GATEWAY_API_KEYS": "env-key-1, env-key-2"})
    assert all(keys.name_of({b"x-api-key": key}) for key in (b"file-key-1", b"file-key-2", b"env-key-1", b"env-key-2"))
    assert keys.name_of({b"x-api-key": b"# retired-key"}) is None
    assert not Keys.read(None, {})


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "  # indented\n", "short\n"])
def test_a_file_without_a_usable_key_does_not_open_the_gateway(tmp_path, text):
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ValueError, match="key"):
        Keys.read(str(tmp_path / "keys"), {})


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        Keys.read(str(tmp_path / "none"), {})


def test_rate_lets_a_burst_pass_and_then_tells_when():
    rate = Rate(2.0)
    assert [rate.wait_s("a", 10.0) for _ in range(4)] == [0.0] * 4
    assert rate.wait_s("a", 10.0) == pytest.approx(0.5)
    assert rate.wait_s("b", 10.0) == 0.0
    assert rate.wait_s("a", 10.5) == 0.0
    assert rate.wait_s("a", 10.5) > 0.0


def test_rate_of_less_than_one_a_second_lets_single_requests_pass():
    rate = Rate(0.1)
    assert rate.wait_s("a", 0.0) == 0.0
    assert rate.wait_s("a", 5.0) == pytest.approx(5.0)
    assert rate.wait_s("a", 10.0) == 0.0


def test_rate_forgets_whom_it_has_not_seen_for_long():
    rate = Rate(1.0)
    for number in range(20_000):
        rate.wait_s(str(number), 0.0)
    assert len(rate._buckets) == 10_000


@pytest.mark.parametrize("given", [b"", b"a b", b"x" * 129, b'{"a"}', b"line\nbreak", "ü".encode()])
def test_an_id_that_would_spoil_logs_is_replaced(given):
    call = read_call({b"x-request-id": given}, 0.0, 60.0)
    assert call.request_id.encode() != given
    assert len(call.request_id) == 16


def test_id_and_trace_are_taken_over():
    call = read_call({b"x-request-id": b"my-id.7", b"traceparent": TRACE, b"tracestate": b"a=1"}, 0.0, 60.0)
    assert call.request_id == "my-id.7"
    assert call.context == {"traceparent": TRACE.decode(), "tracestate": "a=1"}
    assert read_call({b"traceparent": b"00-zz", b"tracestate": b"a=1"}, 0.0, 60.0).context == {}


@pytest.mark.parametrize(
    ("headers", "left_s", "is_given"),
    [
        ({}, 60.0, False),
        ({b"x-request-timeout": b"1.5"}, 1.5, True),
        ({b"x-request-timeout": b"600"}, 60.0, False),
        ({b"x-stainless-read-timeout": b"2"}, 2.0, True),
        ({b"x-stainless-read-timeout": b"600"}, 60.0, False),
        ({b"x-stainless-read-timeout": b"None"}, 60.0, False),
        ({b"x-request-timeout": b"3", b"x-stainless-read-timeout": b"2"}, 3.0, True),
    ],
)
def test_deadline_of_the_client(headers, left_s, is_given):
    call = read_call(headers, 100.0, 60.0)
    set_deadline(call, headers, 100.0, 60.0)
    assert (call.deadline - 100.0, call.has_deadline) == (left_s, is_given)


@pytest.mark.parametrize("value", [b"0", b"-1", b"0.001", b"soon", b"nan", b""])
def test_a_deadline_that_is_none_is_refused(value):
    call = read_call({}, 0.0, 60.0)
    with pytest.raises(ApiError, match="X-Request-Timeout") as caught:
        set_deadline(call, {b"x-request-timeout": value}, 0.0, 60.0)
    assert caught.value.status == 400
