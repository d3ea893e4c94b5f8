import math

import pytest

from lazuli.errors import DeviceError
from lazuli.lane import Lane


def make(turn_tokens=10, most=100, refuse=None):
    return Lane(turn_tokens, lambda program: most, refuse or refuse_nothing)


def refuse_nothing(turn, now):
    raise AssertionError(f"{turn} was refused")


def add(lane, *requests, latest_start=math.inf, deadline=math.inf, queued_at=0.0):
    for request in requests:
        lane.append(request, queued_at, latest_start, deadline)


def take(lane, limit=100, batch=None, num_tokens=0, now=0.0):
    batch = [] if batch is None else batch
    num_tokens = lane.take(batch, num_tokens, limit, now)
    return [(int(sequence.input_ids[0]), sequence.row) for sequence in batch], num_tokens


@pytest.mark.parametrize(
    ("lengths", "limit", "most", "rows", "left"),
    [
        ([4, 4, 4], 12, 9, 3, 0),
        ([4, 4, 4], 11, 9, 2, 4),
        ([4, 4, 4], 12, 2, 2, 4),
        ([20, 4], 12, 9, 1, 4),
        ([4, 20], 12, 9, 1, 20),
    ],
)
def test_rows_are_taken_until_the_batch_is_full(make_request, lengths, limit, most, rows, left):
    lane = make(turn_tokens=100, most=most)
    add(lane, make_request(*lengths, tag=3))
    taken, num_tokens = take(lane, limit)
    assert taken == [(3, row) for row in range(rows)]
    assert (num_tokens, lane.tokens) == (sum(lengths) - left, left)


def test_a_batch_that_holds_something_stays_within_its_limits(make_request):
    lane, others = make(), make()
    add(lane, make_request(8, tag=1))
    add(others, make_request(5, tag=2))
    batch = []
    take(lane, 10, batch)
    assert take(others, 10, batch, 8) == ([(1, 0)], 8)
    assert others.tokens == 5
    assert take(others, 13, batch, 8) == ([(1, 0), (2, 0)], 13)


def test_after_its_turn_a_request_goes_to_the_end(make_request):
    lane = make(turn_tokens=4)
    add(lane, make_request(3, 3, 3, tag=1), make_request(2, 2, tag=2))
    assert take(lane)[0] == [(1, 0), (1, 1), (2, 0), (2, 1), (1, 2)]
    assert lane.tokens == 0


def test_each_row_is_taken_once_whatever_the_limits(make_request):
    lane = make(turn_tokens=7, most=3)
    add(lane, *[make_request(*[1 + (tag + row) % 9 for row in range(tag)], tag=tag) for tag in range(1, 12)])
    taken = []
    while lane.tokens:
        rows, _ = take(lane, limit=11)
        assert 0 < len(rows) <= 3
        taken += rows
    assert sorted(taken) == [(tag, row) for tag in range(1, 12) for row in range(tag)]


def test_tokens_of_requests_that_failed_half_way_are_no_longer_counted(make_request):
    lane = make()
    failed, alive = make_request(4, 4, 4, tag=1), make_request(2, tag=2)
    add(lane, failed, alive)
    take(lane, limit=4)
    failed.fail(DeviceError("no"))
    assert lane.tokens == 10
    assert take(lane) == ([(2, 0)], 2)
    assert lane.tokens == 0


def test_what_is_late(make_request):
    refused = []
    lane = make(turn_tokens=4, refuse=lambda turn, now: refused.append((turn.request, now)))
    begun, waiting, failed, dead = (make_request(4, 4, tag=tag) for tag in range(1, 5))
    add(lane, begun, waiting, failed, latest_start=5.0, queued_at=1.0)
    add(lane, dead, deadline=4.0, queued_at=2.0)
    take(lane, limit=4)
    failed.fail(DeviceError("no"))
    assert lane.next_expiry() == 4.0
    lane.remove_late(3.9)
    assert refused == []
    lane.remove_late(5.0)
    assert refused == [(waiting, 5.0), (dead, 5.0)]
    assert (lane.tokens, lane.next_expiry(), lane.oldest()) == (4, math.inf, 1.0)
    take(lane)
    assert (lane.tokens, lane.oldest()) == (0, math.inf)


def test_what_is_late_when_its_turn_comes_is_not_taken(make_request):
    """Nobody looked through the lane before: what the device computes never depends on that."""
    refused = []
    lane = make(turn_tokens=4, refuse=lambda turn, now: refused.append((turn.request, now)))
    begun, waiting, alive = (make_request(4, 4, tag=tag) for tag in range(1, 4))
    add(lane, begun, deadline=7.0)
    add(lane, waiting, latest_start=5.0)
    add(lane, alive)
    assert take(lane, limit=4)[0] == [(1, 0)]
    assert take(lane, limit=4, now=5.0)[0] == [(3, 0)]
    assert refused == [(waiting, 5.0)]
    assert take(lane, now=7.0)[0] == [(3, 1)]
    assert refused == [(waiting, 5.0), (begun, 7.0)]
    assert lane.tokens == 0
