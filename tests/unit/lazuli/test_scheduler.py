import threading
from collections import Counter

import pytest

from lazuli.errors import DeviceError, OverloadedError, ShuttingDownError
from lazuli.scheduler import Scheduler

PATIENCE_S = 10.0


def make(token_budget=10, max_sequences=100, max_queued_tokens=1000, max_waiting_tokens=10_000_000):
    return Scheduler(
        token_budget=token_budget,
        max_sequences=max_sequences,
        max_queued_tokens=max_queued_tokens,
        max_waiting_tokens=max_waiting_tokens,
    )


def lengths(batch):
    return [len(sequence) for sequence in batch]


def tags(batch):
    return [int(sequence.input_ids[0]) for sequence in batch]


class Waiter:
    """Runs a call in a thread and keeps its result or error."""

    def __init__(self, call, *arguments):
        self.result = None
        self.error = None
        self.ended = threading.Event()
        self._call, self._arguments = call, arguments
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        try:
            self.result = self._call(*self._arguments)
        except Exception as error:
            self.error = error
        self.ended.set()

    def wait(self):
        assert self.ended.wait(PATIENCE_S), "the call never returned"
        return self


def of_program(request, program):
    request.program = program
    return request


class TestPrograms:
    def test_a_batch_has_one(self, make_request):
        scheduler = make()
        for tag, program in enumerate("aabba", 1):
            scheduler.submit(of_program(make_request(1, 1, tag=tag), program))
        batches = [scheduler.next_batch() for _ in range(3)]
        assert [tags(batch) for batch in batches] == [[1, 1, 2, 2], [3, 3, 4, 4], [5, 5]]
        assert scheduler.queued_tokens == 0

    def test_a_batch_behind_failed_rows_of_another(self, make_request):
        scheduler = make()
        failed = of_program(make_request(1, 1, tag=1), "a")
        for request in (failed, of_program(make_request(1, tag=2), "b")):
            scheduler.submit(request)
        failed.fail(DeviceError("no"))
        assert tags(scheduler.next_batch()) == [2]

    def test_one_may_have_fewer_sequences(self, make_request):
        scheduler = Scheduler(
            token_budget=10,
            max_sequences=3,
            max_queued_tokens=100,
            max_waiting_tokens=100,
            program_sequences={"a": 2},
        )
        few, many = (of_program(make_request(1, 1, 1), program) for program in "ab")
        assert scheduler.take_now(few) is None
        assert len(scheduler.take_now(many)) == 3
        scheduler.submit(few)
        scheduler.submit(many)
        assert [len(scheduler.next_batch()) for _ in range(3)] == [2, 1, 3]


class TestBatches:
    def test_first_come_first_served(self, make_request):
        scheduler = make(token_budget=3)
        for tag in range(1, 5):
            scheduler.submit(make_request(1, 1, tag=tag))
        batches = [scheduler.next_batch() for _ in range(3)]
        assert [tags(batch) for batch in batches] == [[1, 1, 2], [2, 3, 3], [4, 4]]
        assert [sequence.row for sequence in batches[0]] == [0, 1, 0]

    @pytest.mark.parametrize(
        ("waiting", "expected"),
        [
            ([4, 6], [[4, 6]]),
            ([4, 7], [[4], [7]]),
            ([10, 1], [[10], [1]]),
            ([9, 1, 1], [[9, 1], [1]]),
            ([25], [[25]]),
            ([1, 25, 1], [[1], [25], [1]]),
            ([25, 25], [[25], [25]]),
            # A short one behind does not overtake a long one that does not fit.
            ([6, 6, 1], [[6], [6, 1]]),
        ],
    )
    def test_the_budget(self, make_request, waiting, expected):
        scheduler = make(token_budget=10)
        scheduler.submit(make_request(*waiting))
        assert [lengths(scheduler.next_batch()) for _ in expected] == expected
        assert scheduler.queued_tokens == 0

    def test_the_most_sequences(self, make_request):
        scheduler = make(token_budget=1000, max_sequences=3)
        scheduler.submit(make_request(*[1] * 7))
        assert [len(scheduler.next_batch()) for _ in range(3)] == [3, 3, 1]

    def test_queued_tokens(self, make_request):
        scheduler = make(token_budget=4)
        scheduler.submit(make_request(3, 2))
        scheduler.submit(make_request(4))
        assert scheduler.queued_tokens == 9
        scheduler.next_batch()
        assert scheduler.queued_tokens == 6

    def test_an_empty_queue_is_waited_for(self, make_request, wait_until_blocked):
        scheduler = make()
        waiter = Waiter(scheduler.next_batch)
        wait_until_blocked(scheduler._not_empty)
        assert not waiter.ended.is_set()
        scheduler.submit(make_request(2))
        assert lengths(waiter.wait().result) == [2]


class TestFailedRequests:
    def test_their_rows_are_passed_over_and_cost_no_budget(self, make_request):
        scheduler = make(token_budget=10)
        failed, alive = make_request(6, 6, tag=1), make_request(5, 5, tag=2)
        scheduler.submit(failed)
        scheduler.submit(alive)
        failed.fail(DeviceError("why"))
        assert tags(scheduler.next_batch()) == [2, 2]
        assert scheduler.queued_tokens == 0

    def test_if_nothing_else_waits_new_work_is_waited_for(self, make_request, wait_until_blocked):
        scheduler = make()
        failed = make_request(3)
        scheduler.submit(failed)
        failed.fail(DeviceError("why"))
        waiter = Waiter(scheduler.next_batch)
        wait_until_blocked(scheduler._not_empty)
        scheduler.submit(make_request(1, tag=5))
        assert tags(waiter.wait().result) == [5]

    def test_they_make_room(self, make_request, wait_until_blocked):
        scheduler = make(max_queued_tokens=4)
        failed = make_request(4)
        scheduler.submit(failed)
        failed.fail(DeviceError("why"))
        scheduler.submit(make_request(2, tag=9))
        blocked = Waiter(scheduler.wait_for_room)
        wait_until_blocked(scheduler._not_full)
        assert tags(scheduler.next_batch()) == [9]
        assert blocked.wait().error is None

    def test_a_closed_queue_of_them_is_drained(self, make_request):
        scheduler = make()
        failed = make_request(3, 3)
        scheduler.submit(failed)
        failed.fail(DeviceError("why"))
        scheduler.close()
        assert scheduler.next_batch() == []


class TestAdmission:
    def test_who_waits_for_room_goes_on_once_there_is_some(self, make_request, wait_until_blocked):
        scheduler = make(token_budget=4, max_queued_tokens=8)
        scheduler.submit(make_request(4, 4))
        blocked = Waiter(scheduler.wait_for_room)
        wait_until_blocked(scheduler._not_full)
        assert not blocked.ended.is_set()
        scheduler.next_batch()
        assert blocked.wait().error is None

    def test_at_the_limit_requests_are_refused_until_some_were_taken(self, make_request):
        scheduler = make(token_budget=4, max_queued_tokens=1, max_waiting_tokens=8)
        scheduler.submit(make_request(7))
        scheduler.submit(make_request(100))
        with pytest.raises(OverloadedError, match="Exceeds maximum queue size: 107 tokens wait, and at 8 no further"):
            scheduler.submit(make_request(1))
        assert scheduler.queued_tokens == 107
        scheduler.next_batch()
        scheduler.next_batch()
        scheduler.submit(make_request(1))
        assert scheduler.queued_tokens == 1

    def test_close_lets_go_who_waits_for_room(self, make_request, wait_until_blocked):
        scheduler = make(max_queued_tokens=1)
        scheduler.submit(make_request(1))
        blocked = [Waiter(scheduler.wait_for_room) for _ in range(3)]
        wait_until_blocked(scheduler._not_full)
        scheduler.close()
        assert [waiter.wait().error for waiter in blocked] == [None] * 3

    def test_after_close_nothing_enters(self, make_request):
        scheduler = make()
        scheduler.close()
        with pytest.raises(ShuttingDownError, match="shutting down"):
            scheduler.submit(make_request(1))


class TestClose:
    def test_what_is_queued_is_still_handed_out(self, make_request):
        scheduler = make(token_budget=2)
        scheduler.submit(make_request(2, 2))
        scheduler.close()
        assert [lengths(scheduler.next_batch()) for _ in range(4)] == [[2], [2], [], []]

    def test_it_wakes_who_waits_for_work(self, wait_until_blocked):
        scheduler = make()
        waiters = [Waiter(scheduler.next_batch) for _ in range(2)]
        wait_until_blocked(scheduler._not_empty)
        scheduler.close()
        assert [waiter.wait().result for waiter in waiters] == [[], []]


def test_under_load_nothing_is_lost_or_doubled(make_request):
    scheduler = make(token_budget=32, max_sequences=8, max_queued_tokens=64)
    num_threads, requests_each = 8, 50
    requests = [
        [
            make_request(*[1 + (thread + number) % 40] * (1 + number % 5), tag=1000 * thread + number)
            for number in range(requests_each)
        ]
        for thread in range(num_threads)
    ]
    taken = []

    def consume():
        while batch := scheduler.next_batch():
            taken.append(batch)

    def produce(own):
        for request in own:
            scheduler.submit(request)

    consumer = Waiter(consume)
    for producer in [Waiter(produce, own) for own in requests]:
        assert producer.wait().error is None
    scheduler.close()
    consumer.wait()
    counts = Counter((tag, sequence.row) for batch in taken for tag, sequence in zip(tags(batch), batch, strict=True))
    expected = {(int(s.input_ids[0]), s.row) for own in requests for request in own for s in request.sequences}
    assert set(counts) == expected
    assert set(counts.values()) == {1}
    assert scheduler.queued_tokens == 0
    for batch in taken:
        assert len(batch) <= 8
        assert len(batch) == 1 or sum(lengths(batch)) <= 32
    for thread in range(num_threads):  # the order within each thread is kept
        order = [tag for batch in taken for tag in tags(batch) if tag // 1000 == thread]
        assert order == sorted(order)
