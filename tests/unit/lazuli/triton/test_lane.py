import threading
from contextlib import contextmanager

import numpy as np
import pytest


class Room:
    """As `AnswerRoom`, with room or without."""

    def __init__(self, granted=True):
        self.granted, self.asked = granted, []

    @contextmanager
    def reserve(self, num_bytes):
        self.asked.append(num_bytes)
        yield self.granted


@pytest.fixture
def lane(load, request):
    lanes = []

    def lane(room=None, **limits):
        lanes.append(load("lane").Lane(room or Room(), **limits))
        return lanes[-1]

    yield lane
    for each in lanes:
        each.close()


def test_one_after_the_other_in_their_order(lane, pb_utils):
    requests, answered = [pb_utils.Request() for _ in range(5)], []

    def answer(number):
        answered.append((number, threading.current_thread()))
        return f"response {number}", 10

    slow = lane()
    for number, request in enumerate(requests):
        slow.submit(1, request.sender, lambda number=number: answer(number))
    assert [request.wait().responses for request in requests] == [[f"response {number}"] for number in range(5)]
    assert [number for number, _ in answered] == list(range(5))
    assert len({thread for _, thread in answered}) == 1
    assert threading.current_thread() not in {thread for _, thread in answered}


def test_several_threads_answer_at_the_same_time(lane, pb_utils):
    requests, together = [pb_utils.Request() for _ in range(3)], threading.Barrier(3)
    slow = lane(threads=3)
    for request in requests:
        slow.submit(1, request.sender, lambda: (together.wait(10) is not None, 1))
    assert [request.wait().responses for request in requests] == [[True]] * 3


def test_too_much_is_waited_for(lane, pb_utils):
    slow, go, first, second, third = lane(most_bytes=10), threading.Event(), *(pb_utils.Request() for _ in range(3))
    slow.submit(6, first.sender, lambda: (go.wait(10) and "first", 1))
    slow.submit(6, second.sender, lambda: ("second", 1))
    late = threading.Thread(target=slow.submit, args=(6, third.sender, lambda: ("third", 1)))
    late.start()
    late.join(0.1)
    assert late.is_alive()
    go.set()
    late.join(10)
    assert [request.wait().responses for request in (first, second, third)] == [["first"], ["second"], ["third"]]


def test_without_room_an_error_is_sent(lane, pb_utils):
    room, request = Room(granted=False), pb_utils.Request()
    lane(room).submit(1, request.sender, lambda: ("never", 1234))
    (response,) = request.wait().responses
    assert response.error.code == pb_utils.TritonError.UNAVAILABLE
    assert response.error.message() == "shared memory is full: no room for 1234 bytes in time"
    assert room.asked == [1234]


def test_a_response_that_cannot_be_sent_does_not_stop_the_others(lane, pb_utils, caplog):
    gone, request = pb_utils.Request(), pb_utils.Request()
    gone.sender.ended.set()  # so that to send raises
    slow = lane()
    slow.submit(1, gone.sender, lambda: ("lost", 1))
    slow.submit(1, request.sender, lambda: ("fine", 1))
    assert request.wait().responses == ["fine"]
    assert "an answer could not be sent" in caplog.text


def test_what_waits_is_answered_at_the_end(lane, pb_utils):
    slow, requests = lane(), [pb_utils.Request() for _ in range(20)]
    for request in requests:
        slow.submit(1, request.sender, lambda: (np.zeros(2), 16))
    slow.close()
    assert all(request.sender.ended.is_set() for request in requests)
