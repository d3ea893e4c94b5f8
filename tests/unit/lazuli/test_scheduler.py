import threading
import time
from collections import Counter
from itertools import pairwise
from math import ceil
from random import Random

import pytest

from lazuli.errors import DeadlineExceededError, DeviceError, OverloadedError, ShuttingDownError
from lazuli.scheduler import Scheduler

PATIENCE_S = 10.0


def make(token_budget=10, max_sequences=100, max_queued_tokens=1000, max_waiting_tokens=10_000_000, **settings):
    return Scheduler(
        token_budget=token_budget,
        max_sequences=max_sequences,
        max_queued_tokens=max_queued_tokens,
        max_waiting_tokens=max_waiting_tokens,
        **settings,
    )


class Clock:
    """Stands still unless it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


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
        assert scheduler.queued_tokens == 5

    def test_the_oldest_age(self, make_request):
        clock = Clock()
        scheduler = make(token_budget=4, clock=clock)
        assert scheduler.oldest_age_s == 0
        scheduler.submit(make_request(3, 2))
        clock.now += 5
        scheduler.submit(make_request(4))
        clock.now += 2
        assert scheduler.oldest_age_s == 7
        for age in (7, 7, 0):  # the query, the first row of bulk, the other
            scheduler.next_batch()
            assert scheduler.oldest_age_s == age

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
        failed, alive = make_request(6, 4, tag=1), make_request(5, 5, tag=2)
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
            scheduler.submit(make_request(5))
        assert scheduler.queued_tokens == 107
        scheduler.next_batch()
        scheduler.next_batch()
        scheduler.submit(make_request(5))
        assert scheduler.queued_tokens == 5

    @pytest.mark.parametrize(("full", "other"), [("bulk", "query"), ("query", "bulk")])
    def test_one_lane_that_is_full_leaves_room_in_the_other(self, make_request, full, other):
        scheduler = make(max_waiting_tokens=8)
        scheduler.submit(of(full, make_request(8)))
        with pytest.raises(OverloadedError):
            scheduler.submit(of(full, make_request(1)))
        scheduler.submit(of(other, make_request(1)))

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


class TestSweep:
    """What was failed by somebody else, because nobody waits for it, counts no more at once."""

    def test_its_tokens_are_given_back(self, make_request):
        scheduler = make(token_budget=4, max_waiting_tokens=8)
        first, cancelled, last = (of("bulk", make_request(4, tag=tag)) for tag in (1, 2, 3))
        scheduler.submit(first)
        scheduler.submit(cancelled)
        with pytest.raises(OverloadedError):
            scheduler.submit(last)
        cancelled.fail(DeviceError("given up"))
        scheduler.sweep()
        assert scheduler.queued_tokens == 4
        scheduler.submit(last)
        assert [tags(scheduler.next_batch()) for _ in range(2)] == [[1], [3]]

    def test_half_of_it_was_computed(self, make_request):
        scheduler = make(token_budget=4)
        cancelled = make_request(*[2] * 6, tag=1)
        scheduler.submit(cancelled)
        scheduler.next_batch()
        cancelled.fail(DeviceError("given up"))
        scheduler.sweep()
        assert scheduler.queued_tokens == 0
        scheduler.submit(make_request(1, tag=2))
        assert tags(scheduler.next_batch()) == [2]

    def test_who_waits_for_room_goes_on(self, make_request, wait_until_blocked):
        scheduler = make(max_queued_tokens=4)
        cancelled = make_request(4)
        scheduler.submit(cancelled)
        blocked = Waiter(scheduler.wait_for_room)
        wait_until_blocked(scheduler._not_full)
        cancelled.fail(DeviceError("given up"))
        scheduler.sweep()
        assert blocked.wait().error is None

    def test_a_queue_of_it_alone_is_like_an_empty_one(self, make_request):
        scheduler = make()
        cancelled = make_request(4)
        scheduler.submit(cancelled)
        cancelled.fail(DeviceError("given up"))
        scheduler.sweep()
        assert scheduler.take_now(make_request(1, tag=5)) is not None
        scheduler.close()
        assert scheduler.next_batch() == []


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


def of(workload, request):
    request.workload = workload
    return request


class TestQueriesAndBulk:
    """A batch that has been taken is written as the tags of its rows."""

    def test_size_tells_unless_the_request_does(self, make_request):
        scheduler = make(token_budget=100, bulk_tokens=10)
        requests = [
            make_request(6, 5, tag=1),
            of("bulk", make_request(1, tag=2)),
            of("query", make_request(11, tag=3)),
            make_request(6, 4, tag=4),
        ]
        for request in requests:
            scheduler.submit(request)
        assert tags(scheduler.next_batch()) == [3, 4, 4]
        assert tags(scheduler.next_batch()) == [1]
        assert tags(scheduler.next_batch()) == [1, 2]

    @pytest.mark.parametrize(("budget", "expected"), [(16384, 1024), (2048, 256), (256, 256), (10, 10)])
    def test_the_default_size(self, budget, expected):
        assert make(token_budget=budget)._bulk_tokens == expected

    def test_a_query_goes_before_what_came_earlier(self, make_request):
        scheduler = make(token_budget=100, bulk_tokens=10)
        scheduler.submit(make_request(*[10] * 50, tag=1))
        scheduler.next_batch()
        scheduler.submit(make_request(5, tag=2))
        assert tags(scheduler.next_batch()) == [2]

    def test_bulk_has_the_whole_batch_unless_a_query_came_lately(self, make_request):
        clock = Clock()
        scheduler = make(token_budget=100, bulk_tokens=10, clock=clock)
        scheduler.submit(make_request(*[5] * 100, tag=1))
        assert len(scheduler.next_batch()) == 20
        scheduler.submit(make_request(1, tag=2))
        sizes = [len(scheduler.next_batch()) for _ in range(3)]
        clock.now += 1.1
        sizes.append(len(scheduler.next_batch()))
        assert sizes == [1, 2, 2, 20]

    @pytest.mark.parametrize("waiting", [None, "bulk"])
    def test_one_that_need_not_queue_counts_as_well(self, make_request, waiting):
        clock = Clock()
        scheduler = make(token_budget=100, bulk_tokens=10, clock=clock)
        assert scheduler.take_now(of(waiting, make_request(20, 20))) is not None
        assert scheduler.take_now(make_request(1)) is not None
        assert scheduler.take_now(of(waiting, make_request(20, 20))) is None
        assert len(scheduler.take_now(make_request(20))) == 1
        clock.now += 1.1
        assert len(scheduler.take_now(of(waiting, make_request(20, 20)))) == 2

    def test_bulk_is_not_starved_by_queries_that_never_end(self, make_request):
        scheduler = make(token_budget=8, bulk_tokens=2)
        scheduler.submit(of("bulk", make_request(*[1] * 20, tag=1)))
        taken = []
        for _ in range(20):
            while scheduler._queries.tokens < 16:
                scheduler.submit(make_request(2, tag=2))
            taken.append(tags(scheduler.next_batch()))
        assert [batch.count(1) for batch in taken] == [0, 2] * 10
        # What bulk leaves is for queries.
        assert [batch.count(2) for batch in taken] == [4, 3] * 10

    def test_queries_of_another_program_do_not_starve_it_either(self, make_request):
        scheduler = make(token_budget=8, bulk_tokens=2)
        scheduler.submit(of("bulk", of_program(make_request(*[1] * 6, tag=1), "a")))
        taken = []
        for _ in range(6):
            while scheduler._queries.tokens < 16:
                scheduler.submit(of_program(make_request(2, tag=2), "b"))
            taken.append(tags(scheduler.next_batch()))
        assert taken == [[2] * 4, [1, 1]] * 3

    def test_queries_are_not_starved_by_bulk_that_never_ends(self, make_request):
        scheduler = make(token_budget=8, bulk_tokens=2)
        scheduler.submit(make_request(*[2] * 8, tag=2))
        scheduler.submit(of("query", make_request(*[2] * 12, tag=3)))
        taken = []
        for _ in range(6):
            scheduler.submit(make_request(*[2] * 8, tag=2))
            taken.append(tags(scheduler.next_batch()).count(3))
        assert taken == [4, 3, 4, 1, 0, 0]

    def test_a_row_longer_than_the_share_of_bulk_gets_its_turn(self, make_request):
        scheduler = make(token_budget=100, bulk_tokens=10)
        scheduler.submit(make_request(60, 60, tag=1))
        scheduler.submit(make_request(2, tag=2))
        scheduler.submit(make_request(3, tag=3))
        assert [tags(scheduler.next_batch()) for _ in range(3)] == [[2, 3], [1], [1]]

    @pytest.mark.parametrize("failed", ["bulk", "query"])
    def test_a_lane_of_failed_requests_does_not_hold_up_the_other(self, make_request, failed):
        scheduler = make(token_budget=100, bulk_tokens=10)
        alive = "query" if failed == "bulk" else "bulk"
        requests = [of(failed, make_request(8, 8, tag=1)), of(alive, make_request(8, 8, tag=2))]
        for request in requests:
            scheduler.submit(request)
        requests[0].fail(DeviceError("no"))
        scheduler.close()
        taken = list(iter(scheduler.next_batch, []))
        assert [tag for batch in taken for tag in tags(batch)] == [2, 2]
        assert scheduler.queued_tokens == 0


@pytest.mark.parametrize("seed", range(20))
class TestWorstCase:
    """The bounds that the class states, for rows of random lengths."""

    BUDGET, SHARE = 64, 16

    def make(self, seed):
        self.random = Random(seed)
        limits = {"token_budget": self.BUDGET} if seed % 2 else {"token_budget": 96, "enough_tokens": self.BUDGET}
        return make(**limits, bulk_tokens=self.SHARE, max_sequences=self.BUDGET)

    def rows(self, most):
        return [self.random.randint(1, self.SHARE) for _ in range(self.random.randint(1, most))]

    def test_bulk_under_queries_that_never_end(self, make_request, seed):
        scheduler = self.make(seed)
        requests = [of("bulk", make_request(*self.rows(12), tag=1)) for _ in range(10)]
        for request in requests:
            scheduler.submit(request)
        waiting, batches, turns = sum(request.num_tokens for request in requests), 0, []
        num_tokens = waiting
        while waiting:
            while scheduler._queries.tokens < 2 * self.BUDGET:
                scheduler.submit(of("query", make_request(*self.rows(4), tag=2)))
            batch = scheduler.next_batch()
            batches += 1
            assert sum(lengths(batch)) <= scheduler._token_budget
            taken = sum(len(sequence) for sequence in batch if sequence.request.workload == "bulk")
            assert bool(taken) == (batches % 2 == 0), "every second batch begins with bulk"
            waiting -= taken
            turns += [taken] if taken else []
        assert batches <= 4 * ceil(num_tokens / self.SHARE) + 2
        # In the long run: about the share, and never less than half of it.
        assert all(sum(pair) > self.SHARE for pair in pairwise(turns[:-1]))
        assert max(turns) <= self.SHARE

    def test_queries_under_bulk_that_never_ends(self, make_request, seed):
        scheduler = self.make(seed)
        age, bound, tag, taken = {}, {}, 0, []
        for _ in range(200):
            while scheduler._bulk.tokens < 2 * self.BUDGET:
                scheduler.submit(of("bulk", make_request(*self.rows(40), tag=0)))
            for _ in range(self.random.choice([0, 0, 1, 2])):
                tag += 1
                query = of("query", make_request(*self.rows(3), tag=tag))
                scheduler.submit(query)
                age[tag] = 0
                bound[tag] = 2 * ceil(scheduler._queries.tokens / (self.BUDGET - self.SHARE))
            batch = tags(scheduler.next_batch())
            for waiting in age:
                age[waiting] += 1
            left = {int(turn.request.sequences[0].input_ids[0]) for turn in scheduler._queries._turns}
            for done in set(age) - left:
                assert age.pop(done) <= bound[done]
                taken.append(done)
            assert len(batch)
        assert len(taken) > 100

    def test_bulk_among_bulk(self, make_request, seed):
        scheduler = self.make(seed)
        count = 5
        turn = max(self.SHARE, scheduler._token_budget // 2)
        for tag in range(1, count + 1):
            scheduler.submit(
                of("bulk", make_request(*[self.random.randint(1, self.SHARE) for _ in range(200)], tag=tag))
            )
        others = dict.fromkeys(range(1, count + 1), 0)
        while scheduler._bulk._turns and len(scheduler._bulk._turns) == count:
            for sequence in scheduler.next_batch():
                own = int(sequence.input_ids[0])
                assert others[own] <= (count - 1) * (turn + self.SHARE)
                others[own] = 0
                for tag in others:
                    others[tag] += len(sequence) * (tag != own)


class TestEnoughTokens:
    def test_a_short_queue_is_divided_a_long_one_has_whole_batches(self, make_request):
        scheduler = make(token_budget=32, enough_tokens=8)
        for tag in range(1, 121):
            scheduler.submit(make_request(1, tag=tag))
        scheduler.close()
        sizes = [len(batch) for batch in iter(scheduler.next_batch, [])]
        # A third of what waits: of 120 more than the budget, of 24 and fewer less than enough.
        assert sizes == [32, 29, 19, 13, 9, 8, 8, 2]

    def test_clients_that_come_again_fill_batches_while_two_are_on_their_way(self, make_request):
        """Of 64 that wait for their answers, none is ever in a batch that is smaller than the others."""
        scheduler = make(token_budget=32, enough_tokens=16)
        for tag in range(1, 65):
            scheduler.submit(make_request(1, tag=tag))
        on_their_way = [scheduler.next_batch(), scheduler.next_batch()]
        for _ in range(20):
            for tag in tags(on_their_way.pop(0)):
                scheduler.submit(make_request(1, tag=tag))
            on_their_way.append(scheduler.next_batch())
            assert len(on_their_way[-1]) in (16, 21)

    def test_a_longer_row_has_a_batch_by_itself(self, make_request):
        scheduler = make(token_budget=32, enough_tokens=8)
        scheduler.submit(make_request(20, 2, 3, tag=1))
        assert [lengths(scheduler.next_batch()) for _ in range(2)] == [[20], [2, 3]]

    def test_bulk_beside_queries_has_no_more_than_alone(self, make_request):
        scheduler = make(token_budget=32, enough_tokens=8, bulk_tokens=20)
        scheduler.submit(of("query", make_request(1, tag=1)))
        scheduler.next_batch()
        scheduler.submit(of("bulk", make_request(*[1] * 18, tag=2)))
        assert len(scheduler.next_batch()) == 8

    def test_the_budget_unless_told(self, make_request):
        scheduler = make(token_budget=32)
        scheduler.submit(make_request(*[1] * 40))
        assert len(scheduler.next_batch()) == 32


class TestTurns:
    def test_bulk_requests_take_turns_of_half_a_budget(self, make_request):
        scheduler = make(token_budget=8, bulk_tokens=1)
        for tag in (1, 2, 3):
            scheduler.submit(make_request(*[1] * 8, tag=tag))
        scheduler.submit(make_request(1, 1, tag=4))
        batches = [tags(scheduler.next_batch()) for _ in range(4)]
        assert batches == [[1] * 4 + [2] * 4, [3] * 4 + [4] * 2 + [1] * 2, [1] * 2 + [2] * 4 + [3] * 2, [3] * 2]

    def test_a_request_of_some_texts_is_not_held_up_by_one_of_ten_thousand(self, make_request):
        scheduler = make(token_budget=64, bulk_tokens=4)
        scheduler.submit(make_request(*[2] * 10_000, tag=1))
        scheduler.next_batch()
        scheduler.submit(make_request(*[2] * 30, tag=2))
        taken = [tags(scheduler.next_batch()) for _ in range(3)]
        assert sum(batch.count(2) for batch in taken) == 30

    def test_a_turn_goes_on_in_the_next_batch(self, make_request):
        """In small batches, too, few requests share one."""
        scheduler = make(token_budget=16, bulk_tokens=2)
        scheduler.submit(make_request(1, tag=9))
        for tag in (1, 2):
            scheduler.submit(make_request(*[1] * 12, tag=tag))
        taken = [tags(scheduler.next_batch()) for _ in range(9)]
        assert taken == [[9], *[[1, 1]] * 4, *[[2, 2]] * 4]

    def test_long_rows_take_longer_turns_and_none_is_left_out(self, make_request):
        scheduler = make(token_budget=8, bulk_tokens=1)
        scheduler.submit(make_request(*[7] * 3, tag=1))
        scheduler.submit(make_request(*[3] * 3, tag=2))
        scheduler.close()
        taken = [tags(batch) for batch in iter(scheduler.next_batch, [])]
        assert taken == [[1], [2, 2], [1], [2], [1]]


class TestLateness:
    @pytest.fixture
    def refused(self):
        return {}

    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def scheduler(self, refused, clock):
        def refuse(request, error):
            assert request not in refused, "refused twice"
            refused[request] = error

        return make(token_budget=8, bulk_tokens=2, max_queue_ms=5000, refuse=refuse, clock=clock)

    def test_what_waited_too_long_is_refused_and_the_rest_served(self, scheduler, make_request, refused, clock):
        old, young = make_request(2, tag=1), make_request(2, tag=2)
        scheduler.submit(old)
        clock.now += 3
        scheduler.submit(young)
        clock.now += 2.5
        assert tags(scheduler.next_batch()) == [2]
        assert list(refused) == [old]
        assert isinstance(refused[old], OverloadedError)
        assert str(refused[old]).startswith("Exceeds maximum queue time: not begun within 5 s")
        assert scheduler.queued_tokens == 0

    def test_what_was_begun_is_finished_however_old(self, scheduler, make_request, refused, clock):
        scheduler.submit(make_request(*[4] * 3, tag=1))
        assert tags(scheduler.next_batch()) == [1, 1]
        clock.now += 60
        assert tags(Waiter(scheduler.next_batch).wait().result) == [1]
        assert not refused

    def test_a_deadline_holds_for_what_was_begun_as_well(self, scheduler, make_request, refused, clock):
        request = make_request(*[4] * 4)
        request.deadline_ms = 30
        scheduler.submit(request)
        assert len(scheduler.next_batch()) == 2
        clock.now += 0.031
        scheduler.submit(make_request(1, tag=2))
        assert tags(scheduler.next_batch()) == [2]
        assert isinstance(refused[request], DeadlineExceededError)
        assert str(refused[request]).startswith("timed out: the deadline of 30 ms was over")
        assert scheduler.queued_tokens == 0

    def test_what_is_late_is_refused_wherever_it_waits(self, scheduler, make_request, refused, clock):
        for tag in range(20):
            scheduler.submit(make_request(*[4] * 4, tag=tag))
        requests = [make_request(*[4] * 4, tag=50), make_request(1, tag=51)]
        for request in requests:
            request.deadline_ms = 100
            scheduler.submit(request)
        for tag in range(20):
            scheduler.submit(of("query", make_request(8, tag=100 + tag)))
        clock.now += 0.2
        scheduler.next_batch()
        assert set(refused) == set(requests)
        assert scheduler.queued_tokens == 20 * 16 + 19 * 8

    def test_deadlines_that_pass_soon_after_each_other_are_all_seen(self, scheduler, make_request, refused, clock):
        requests = [make_request(*[8] * 2) for _ in range(5)]
        for number, request in enumerate(requests):
            request.deadline_ms = 1 + number
            scheduler.submit(request)
        scheduler.submit(make_request(*[8] * 20))
        for _ in range(12):
            clock.now += 0.0015
            scheduler.next_batch()
        assert set(refused) == set(requests)

    def test_to_look_through_a_long_queue_takes_little_of_the_time(self, make_request, clock):
        """The more it takes, the rarer it is; what is late is not computed all the same."""
        refused = []

        def refuse(request, error):
            clock.now += 0.01
            refused.append(request)

        scheduler = make(token_budget=8, bulk_tokens=2, refuse=refuse, clock=clock)
        late = [make_request(4, 4) for _ in range(5)]
        deep, first = make_request(4, 4), make_request(1)
        for request in (*late, deep):
            request.deadline_ms = 100 if request is deep else 10
        for request in (*late, *(make_request(*[4] * 9) for _ in range(9)), deep):
            scheduler.submit(request)
        clock.now += 0.02
        scheduler.next_batch()
        assert refused == late
        clock.now += 0.5
        first.deadline_ms = 1
        scheduler.submit(first)
        clock.now += 0.1
        assert all(sequence.request is not first for sequence in scheduler.next_batch())
        assert refused == [*late, first], "the other one is not looked for yet"
        clock.now += 0.5
        scheduler.next_batch()
        assert refused == [*late, first, deep]

    def test_all_of_them_late_is_like_an_empty_queue(self, scheduler, make_request, refused, clock, wait_until_blocked):
        scheduler.submit(make_request(2))
        clock.now += 6
        waiter = Waiter(scheduler.next_batch)
        wait_until_blocked(scheduler._not_empty)
        assert len(refused) == 1
        scheduler.submit(make_request(1, tag=7))
        assert tags(waiter.wait().result) == [7]

    def test_a_closed_queue_of_them_is_drained(self, scheduler, make_request, refused, clock):
        scheduler.submit(make_request(2, 2, 2))
        scheduler.close()
        clock.now += 6
        assert scheduler.next_batch() == []
        assert len(refused) == 1

    def test_without_limits_nothing_is_ever_late(self, make_request):
        clock = Clock()
        scheduler = make(clock=clock)
        scheduler.submit(make_request(2))
        clock.now += 1e9
        assert len(scheduler.next_batch()) == 1


def test_under_load_nothing_is_lost_or_doubled(make_request):
    scheduler = make(token_budget=32, max_sequences=8, max_queued_tokens=64, bulk_tokens=16)
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
    order = [tag for batch in taken for tag in tags(batch)]
    for own in requests:  # the order of each thread's queries is kept, and its bulk begins in order
        for is_query in (True, False):
            wanted = [request.sequences[0] for request in own if (request.num_tokens <= 16) == is_query]
            places = [order.index(int(sequence.input_ids[0])) for sequence in wanted]
            assert places == sorted(places)


def test_under_load_each_request_is_computed_or_refused_once(make_request):
    """Deadlines pass while threads submit and take; rows of a refused request are never handed out afterwards."""
    refused, lock = Counter(), threading.Lock()

    def refuse(request, error):
        assert isinstance(error, DeadlineExceededError)
        with lock:
            refused[request] += 1

    scheduler = make(token_budget=32, max_sequences=8, max_queued_tokens=64, bulk_tokens=16, refuse=refuse)
    requests = [[make_request(*[1 + n % 9] * (1 + n % 5), tag=100 * t + n) for n in range(60)] for t in range(6)]
    for own in requests:
        for number, request in enumerate(own):
            request.deadline_ms = (None, 1, 20)[number % 3]
    rows = Counter()

    def consume():
        while batch := scheduler.next_batch():
            for sequence in batch:
                assert not refused[sequence.request]
                rows[sequence.request] += 1
            time.sleep(0.0005)

    def produce(own):
        for request in own:
            scheduler.submit(request)

    consumer = Waiter(consume)
    for producer in [Waiter(produce, own) for own in requests]:
        assert producer.wait().error is None
    scheduler.close()
    assert consumer.wait().error is None
    everything = [request for own in requests for request in own]
    assert set(refused.values()) == {1}
    for request in everything:
        assert bool(refused[request]) != (rows[request] == len(request.sequences))
        assert not (refused[request] and request.deadline_ms is None)
    assert scheduler.queued_tokens == 0
