"""Keys, limits, ids and deadlines, each where it is decided; `test_app.py` has them together."""

import pytest

from lazuli_client.gateway.errors import ApiError
from lazuli_client.gateway.guard.arrival import Arrival, Places
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
    assert [rate.wait_s("late", 100.0), rate.wait_s("late", 100.0)] == [0.0, 0.0]
    assert rate.wait_s("late", 100.0) > 0.0
    for number in range(20_000):  # of names that came before, and are more than there is room for
        rate.wait_s(str(number), 1.0)
    assert rate.wait_s("late", 100.0) > 0.0


@pytest.mark.parametrize(("first", "later"), [(1e6, 5.0), (5.0, 5.0)])
def test_a_clock_that_began_anew_takes_nothing_away(first, later):
    rate = Rate(1.0)
    assert rate.wait_s("a", first) == 0.0
    assert rate.wait_s("a", later) == 0.0


def test_processes_with_one_file_count_together(tmp_path):
    """And each for itself without one."""
    together = [Rate(2.0, str(tmp_path / "rates")) for _ in range(3)]
    waits = [together[number % 3].wait_s("a", 10.0) for number in range(6)]
    assert waits == [0.0] * 4 + [0.5] * 2
    assert together[0].wait_s("b", 10.0) == 0.0
    alone = [Rate(2.0) for _ in range(2)]
    assert [alone[number % 2].wait_s("a", 10.0) for number in range(8)] == [0.0] * 8


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


def arrivals(places, *bodies):
    """The arrival of each body, which is a list of pieces; None for one that goes away."""

    def arrival(pieces):
        left = list(pieces)

        async def receive():
            piece = left.pop(0)
            if piece is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": bool(left)}

        return Arrival(receive, places)

    return [arrival(pieces) for pieces in bodies]


async def test_a_body_takes_a_place_when_it_is_whole():
    places = Places(1, 100)
    first, second = arrivals(places, [b"a" * 50, b"a" * 50], [b"a" * 10])
    await first.receive()
    assert (places.taken, places.arriving_bytes) == (0, 50)
    await first.receive()
    assert (places.taken, places.arriving_bytes) == (1, 0)
    with pytest.raises(ApiError, match="1 requests are under way") as caught:
        await second.receive()
    assert caught.value.status == 429
    first.end()
    second.end()
    assert (places.taken, places.arriving_bytes) == (0, 0)


async def test_all_bodies_that_are_on_their_way_have_a_limit():
    places = Places(1, 100)
    several = arrivals(places, *[[b"a" * 100, b""]] * 65)
    for one in several[:64]:
        await one.receive()
    with pytest.raises(ApiError, match="large bodies") as caught:
        await several[64].receive()
    assert caught.value.status == 429
    for one in several:
        one.end()
    assert places.arriving_bytes == 0


@pytest.mark.parametrize("pieces", [[b"a" * 101], [b"a" * 60, b"a" * 41], [b"a" * 60, b"a" * 41, b""]])
async def test_a_body_over_the_limit(pieces):
    places = Places(1, 100)
    (arrival,) = arrivals(places, pieces)
    if len(pieces) > 1:
        await arrival.receive()
    with pytest.raises(ApiError, match="100 bytes") as caught:
        await arrival.receive()
    assert caught.value.status == 413
    arrival.end()
    assert (places.taken, places.arriving_bytes) == (0, 0)


async def test_a_client_that_goes_away_gives_back_what_it_took():
    places = Places(1, 100)
    (arrival,) = arrivals(places, [b"a" * 60, None])
    await arrival.receive()
    assert (await arrival.receive())["type"] == "http.disconnect"
    arrival.end()
    assert (places.taken, places.arriving_bytes) == (0, 0)
