import logging
import threading
import time
import weakref
from collections import Counter

import numpy as np
import pytest

from lazuli import runner as runner_module
from lazuli.errors import DeviceError, NonFiniteError, ShuttingDownError
from lazuli.lazy_tensor import LazyTensor
from lazuli.reply import ReplyPool
from lazuli.request import StreamRequest, UnaryRequest
from lazuli.runner import Runner
from lazuli.scheduler import Scheduler

PATIENCE_S = 10.0
POISON, NAN = 666, 667


class PooledTensor(LazyTensor):
    """A result in a buffer of a pool; the buffer is overwritten as soon as it is given back."""

    def __init__(self, engine, values):
        self._engine = engine
        self._buffer = engine.free.pop() if engine.free else np.empty((512, 2), dtype=np.float32)
        self._view = self._buffer[: len(values)]
        self._view[:] = values

    def is_ready(self):
        return True

    def result(self):
        self._engine.gate.wait(PATIENCE_S)
        array = self._view.copy()
        self._buffer.fill(-1)
        self._engine.free.append(self._buffer)
        self._engine.note_arrival()
        return array


class FakeEngine:
    """The vector of a sequence is (its first id, its length)."""

    def __init__(self):
        self.free = []
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()
        self.on_the_way = self.most_on_the_way = 0
        self.stepped = threading.Semaphore(0)
        self.idle_calls = []
        self.left_to_do = 0
        self.idle = threading.Semaphore(0)
        self._lock = threading.Lock()

    def step(self, batch):
        self.batches.append(batch)
        self.stepped.release()
        if POISON in batch.input_ids:
            raise RuntimeError("out of memory")
        with self._lock:
            self.on_the_way += 1
            self.most_on_the_way = max(self.most_on_the_way, self.on_the_way)
        firsts = batch.input_ids[batch.cu_seqlens[:-1]].astype(np.float32)
        values = np.stack([np.where(firsts == NAN, np.nan, firsts), np.diff(batch.cu_seqlens)], axis=1)
        return PooledTensor(self, values)

    def use_idle_time(self, *, quiet):
        self.idle_calls.append((quiet, threading.get_ident()))
        self.left_to_do -= 1
        self.idle.release()
        return self.left_to_do > 0

    def note_arrival(self):
        with self._lock:
            self.on_the_way -= 1


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def start(engine):
    runners = []

    def start(token_budget=64, max_in_flight=2, max_queued_tokens=10_000):
        scheduler = Scheduler(
            token_budget=token_budget, max_sequences=16, max_queued_tokens=max_queued_tokens, max_waiting_tokens=10**6
        )
        runners.append(Runner(engine, scheduler, ReplyPool(max_in_flight + 1), max_in_flight))
        return scheduler, runners[-1]

    yield start
    engine.gate.set()
    for runner in runners:
        if runner._thread.is_alive():
            runner.close()


def expected(request):
    return [[float(sequence.input_ids[0]), float(len(sequence))] for sequence in request.sequences]


@pytest.mark.parametrize("may_step", [False, True])
@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
def test_requests_of_many_threads_get_their_own_vectors(start, engine, make_request, make_sender, cls, may_step):
    _, runner = start(max_queued_tokens=128)
    pairs = []
    for number in range(160):
        sender = make_sender()
        lengths = [1 + (number + row) % 20 for row in range(1 + number % 7)]
        pairs.append((make_request(*lengths, tag=number, cls=cls, sender=sender), sender))

    def submit(first):
        for request, _ in pairs[first::8]:
            runner.submit(request, may_step=may_step)

    threads = [threading.Thread(target=submit, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runner.close()
    for request, sender in pairs:
        assert sender.embedding().tolist() == expected(request)
    assert sum(batch.num_sequences for batch in engine.batches) == sum(len(request.sequences) for request, _ in pairs)


def test_a_result_is_never_overwritten_by_the_next_user_of_its_buffer(start, engine, make_request, make_sender):
    """A unary request waits for its last batch, while the buffers of its first are used again."""
    scheduler, runner = start(token_budget=2)
    sender = make_sender()
    request = make_request(*[2] * 50, tag=5, sender=sender)
    scheduler.submit(request)
    runner.close()
    assert sender.embedding().tolist() == expected(request)
    assert len(engine.batches) == 50
    assert len(engine.free) <= 4


def test_the_finish_code_follows_its_sequence(start, engine, make_request):
    scheduler, runner = start()
    engine.gate.clear()
    scheduler.submit(make_request(9, tag=1))
    assert engine.stepped.acquire(timeout=PATIENCE_S)
    for tag, length, normalize in ((2, 5, True), (3, 1, False), (4, 3, True)):
        scheduler.submit(make_request(length, tag=tag, normalize=normalize))
    engine.gate.set()
    runner.close()
    codes = {}
    for batch in engine.batches:
        codes |= dict(zip(batch.input_ids[batch.cu_seqlens[:-1]].tolist(), batch.finish.tolist(), strict=True))
    assert codes == {1: 0, 2: 1, 3: 0, 4: 1}


class TestPrepare:
    """Of the thread that will step: OpenMP threads belong to the thread that warmed them up."""

    def test_it_runs_once_on_the_stepping_thread_before_the_first_batch(self, engine, make_request, make_sender):
        seen, sender = [], make_sender()
        step = engine.step
        engine.step = lambda batch: seen.append(("step", threading.get_ident())) or step(batch)
        scheduler = Scheduler(token_budget=64, max_sequences=16, max_queued_tokens=100, max_waiting_tokens=1000)
        scheduler.submit(make_request(1, sender=sender))
        runner = Runner(engine, scheduler, ReplyPool(2), 1, lambda: seen.append(("prepare", threading.get_ident())))
        assert seen[0][0] == "prepare"
        sender.wait()
        runner.close()
        assert [name for name, _ in seen] == ["prepare", "step"]
        assert seen[0][1] == seen[1][1] != threading.get_ident()

    def test_what_it_raises_is_raised_by_the_runner(self, engine):
        def fail():
            raise RuntimeError("no memory")

        scheduler = Scheduler(token_budget=64, max_sequences=16, max_queued_tokens=100, max_waiting_tokens=1000)
        replies = ReplyPool(2)
        with pytest.raises(RuntimeError, match="no memory"):
            Runner(engine, scheduler, replies, 1, fail)
        replies.close()


class TestSteppingInTheCallingThread:
    @pytest.fixture
    def steppers(self, engine):
        """The threads that stepped."""
        threads, step = [], engine.step
        engine.step = lambda batch: threads.append(threading.get_ident()) or step(batch)
        return threads

    @pytest.fixture
    def runner(self, start, wait_until_blocked):
        """A runner with two slots that waits for work, and so holds one of them."""
        scheduler, runner = start(max_in_flight=2)
        wait_until_blocked(scheduler._not_empty)
        return runner

    def test_while_nothing_else_is_to_do(self, runner, steppers, make_request, make_sender):
        for tag in range(3):
            sender = make_sender()
            runner.submit(make_request(2, 1, tag=tag, sender=sender), may_step=True)
            assert sender.wait().embedding().tolist() == [[tag, 2], [tag, 1]]
        assert steppers[0] == threading.get_ident()

    def test_it_delivers_if_it_may_wait(self, runner, make_request):
        class Sender:
            def send(self, part, *, final):
                threads.append(threading.get_ident())

        threads = []
        for _ in range(3):  # each gives its slot back
            runner.submit(make_request(2, sender=Sender()), may_step=True, may_wait=True)
        assert threads == [threading.get_ident()] * 3

    def test_not_if_it_may_not(self, runner, steppers, make_request):
        runner.submit(make_request(1))
        runner.close()
        assert steppers == [runner._thread.ident]

    def test_not_ahead_of_what_waits_nor_beyond_the_limit(self, runner, engine, steppers, make_request):
        engine.gate.clear()
        for tag in (1, 2, 3, 4):
            runner.submit(make_request(1, tag=tag), may_step=True)
            if tag <= 2:
                assert engine.stepped.acquire(timeout=PATIENCE_S)
        assert not engine.stepped.acquire(timeout=0.05)
        engine.gate.set()
        runner.close()
        assert steppers[0] == threading.get_ident()
        assert set(steppers[1:]) == {runner._thread.ident}
        assert engine.most_on_the_way == 2
        assert [int(tag) for batch in engine.batches for tag in batch.input_ids] == [1, 2, 3, 4]

    def test_not_what_makes_several_batches(self, start, engine, steppers, make_request):
        _, runner = start(token_budget=4)
        runner.submit(make_request(3, 3), may_step=True)
        runner.close()
        assert set(steppers) == {runner._thread.ident}

    def test_a_failure_fails_the_request_and_frees_the_slot(self, start, make_request, make_sender):
        _, runner = start()
        for _ in range(3):
            sender = make_sender()
            runner.submit(make_request(1, tag=POISON, sender=sender), may_step=True)
            assert isinstance(sender.wait().error(), DeviceError)

    def test_close_waits_for_the_answer(self, start, engine, make_request, make_sender):
        _, runner = start()
        sender = make_sender()
        engine.gate.clear()
        runner.submit(make_request(1, tag=5, sender=sender), may_step=True)
        closing = threading.Thread(target=runner.close)
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
        engine.gate.set()
        closing.join(PATIENCE_S)
        assert sender.embedding().tolist() == [[5, 1]]
        with pytest.raises(ShuttingDownError):
            runner.submit(make_request(1), may_step=True)

    def test_its_gaps_are_not_taken_for_quiet(self, start, engine, make_request, make_sender, monkeypatch):
        monkeypatch.setattr(runner_module, "_QUIET_S", 5.0)
        engine.left_to_do = 10**9
        _, runner = start()
        runner._stepped_at -= 100  # it has been quiet for long
        sender = make_sender()
        runner.submit(make_request(1, sender=sender), may_step=True)
        sender.wait()
        before = len(engine.idle_calls)
        for _ in range(3):
            assert engine.idle.acquire(timeout=PATIENCE_S)
        assert not any(quiet for quiet, _ in engine.idle_calls[before + 1 :])


class TestIdleTime:
    def test_a_thread_of_its_own_uses_it_while_batches_come(self, start, engine, make_request, make_sender):
        engine.left_to_do = 10**9
        scheduler, runner = start()
        for _ in range(3):
            sender = make_sender()
            scheduler.submit(make_request(1, sender=sender))
            sender.wait()
            assert engine.idle.acquire(timeout=PATIENCE_S)
        threads = {thread for _, thread in engine.idle_calls}
        assert threads == {runner._idle_thread.ident}

    def test_batches_run_beside_it(self, start, engine, make_request, make_sender):
        begun, end = threading.Event(), threading.Event()

        def capture(*, quiet):
            begun.set()
            return not end.wait(PATIENCE_S)

        engine.use_idle_time = capture
        _, runner = start()
        assert begun.wait(PATIENCE_S)
        for may_step in (False, True):
            sender = make_sender()
            runner.submit(make_request(1, sender=sender), may_step=may_step)
            assert sender.wait().embedding().shape == (1, 2)
        end.set()

    def test_in_a_gap_it_is_used_until_nothing_is_left(self, start, engine, monkeypatch):
        monkeypatch.setattr(runner_module, "_QUIET_S", 0.4)
        engine.left_to_do = 4
        start()
        for _ in range(4):
            assert engine.idle.acquire(timeout=PATIENCE_S)
        assert not engine.idle.acquire(timeout=0.1)
        assert not any(quiet for quiet, _ in engine.idle_calls)

    def test_it_looks_again_once_it_is_quiet(self, start, engine, monkeypatch):
        """Those who step by themselves wake nobody, but may have left something to do."""
        monkeypatch.setattr(runner_module, "_QUIET_S", 0.05)
        start()
        for _ in range(3):
            assert engine.idle.acquire(timeout=PATIENCE_S)
        assert engine.idle_calls[-1][0] is True

    def test_a_request_comes_first_and_there_is_more_afterwards(self, start, engine, make_request, make_sender):
        engine.left_to_do = 10**9
        scheduler, _ = start()
        for _ in range(3):
            assert engine.idle.acquire(timeout=PATIENCE_S)
            sender = make_sender()
            scheduler.submit(make_request(1, sender=sender))
            assert sender.wait().embedding().shape == (1, 2)
        assert engine.idle.acquire(timeout=PATIENCE_S)

    def test_a_failure_there_harms_no_request(self, start, engine, make_request, make_sender, caplog):
        def fail(*, quiet):
            raise RuntimeError("no memory for a graph")

        engine.use_idle_time = fail
        scheduler, _ = start()
        with caplog.at_level(logging.CRITICAL, logger="lazuli.runner"):
            for _ in range(3):
                sender = make_sender()
                scheduler.submit(make_request(1, sender=sender))
                assert sender.wait().embedding().shape == (1, 2)

    def test_close_does_not_wait_for_what_is_left(self, start, engine):
        engine.left_to_do = 10**9
        _, runner = start()
        runner.close()
        assert not runner._thread.is_alive()
        assert not runner._idle_thread.is_alive()


class TestMemory:
    def test_retries_do_not_hold_what_the_failed_batch_had(self, start, engine, make_request, make_sender, caplog):
        class Activations:
            pass

        alive, seen, step = [], [], engine.step

        def run_out_of_memory(batch):
            seen.append(sum(reference() is not None for reference in alive))
            activations = Activations()
            alive.append(weakref.ref(activations))
            if batch.num_sequences > 1:
                raise RuntimeError("out of memory")
            return step(batch)

        scheduler, runner = start(max_in_flight=1)
        engine.gate.clear()
        scheduler.submit(make_request(1))
        assert engine.stepped.acquire(timeout=PATIENCE_S)
        engine.step = run_out_of_memory
        senders = [make_sender() for _ in range(3)]
        for tag, sender in enumerate(senders):
            scheduler.submit(make_request(1, tag=tag, sender=sender))
        with caplog.at_level(logging.CRITICAL, logger="lazuli.runner"):
            engine.gate.set()
            runner.close()
        caplog.clear()
        assert seen == [0] * 4
        assert [sender.embedding().tolist() for sender in senders] == [[[0, 1]], [[1, 1]], [[2, 1]]]


class TestInFlight:
    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_never_more_than_allowed(self, start, engine, make_request, limit):
        scheduler, runner = start(token_budget=1, max_in_flight=limit)
        engine.gate.clear()
        requests = [make_request(1) for _ in range(20)]
        for request in requests:
            scheduler.submit(request)
        for _ in range(limit):
            assert engine.stepped.acquire(timeout=PATIENCE_S)
        assert not engine.stepped.acquire(timeout=0.05)
        engine.gate.set()
        runner.close()
        assert engine.most_on_the_way == limit
        assert all(request.done for request in requests)

    def test_meanwhile_requests_gather_into_larger_batches(self, start, engine, make_request):
        scheduler, runner = start(max_in_flight=1)
        engine.gate.clear()
        scheduler.submit(make_request(1))
        assert engine.stepped.acquire(timeout=PATIENCE_S)
        for _ in range(6):
            scheduler.submit(make_request(1))
        engine.gate.set()
        runner.close()
        assert [batch.num_sequences for batch in engine.batches] == [1, 6]


class TestFailures:
    def run_together(self, start, engine, requests):
        """All requests in one batch, behind one that holds the only slot."""
        scheduler, runner = start(max_in_flight=1)
        engine.gate.clear()
        scheduler.submit(requests[0])
        assert engine.stepped.acquire(timeout=PATIENCE_S)
        for request in requests[1:]:
            scheduler.submit(request)
        engine.gate.set()
        return scheduler, runner

    def test_a_batch_that_fails_fails_only_the_request_to_blame(self, start, engine, make_request, make_sender, caplog):
        senders = [make_sender() for _ in range(5)]
        tags = [1, 2, POISON, 4, 5]
        requests = [make_request(2, 1, tag=tag, sender=s) for tag, s in zip(tags, senders, strict=True)]
        with caplog.at_level(logging.CRITICAL, logger="lazuli.runner"):
            _, runner = self.run_together(start, engine, requests)
            runner.close()
        assert [batch.num_sequences for batch in engine.batches] == [2, 8, 2, 2, 2, 2]
        error = senders[2].error()
        assert isinstance(error, DeviceError)
        assert "out of memory" in str(error)
        for place in (0, 1, 3, 4):
            assert senders[place].embedding().tolist() == expected(requests[place])

    def test_two_to_blame(self, start, engine, make_request, make_sender):
        senders = [make_sender() for _ in range(4)]
        tags = [1, POISON, 3, POISON]
        requests = [make_request(1, tag=tag, sender=s) for tag, s in zip(tags, senders, strict=True)]
        _, runner = self.run_together(start, engine, requests)
        runner.close()
        assert [len(sender.errors) for sender in senders] == [0, 1, 0, 1]
        assert senders[2].embedding().tolist() == expected(requests[2])

    def test_the_slot_of_a_failed_batch_is_free_again(self, start, engine, make_request, make_sender):
        scheduler, _ = start(max_in_flight=1)
        for _ in range(5):
            sender = make_sender()
            scheduler.submit(make_request(1, tag=POISON, sender=sender))
            assert isinstance(sender.wait().error(), DeviceError)
        sender = make_sender()
        scheduler.submit(make_request(1, tag=3, sender=sender))
        assert sender.wait().embedding().tolist() == [[3.0, 1.0]]

    def test_rows_that_wait_behind_a_failure_are_not_computed(self, start, engine, make_request, make_sender):
        scheduler, runner = start(token_budget=1, max_in_flight=1)
        sender = make_sender()
        scheduler.submit(make_request(*[1] * 30, tag=NAN, cls=StreamRequest, sender=sender))
        assert isinstance(sender.wait().error(), NonFiniteError)
        runner.close()
        assert len(engine.batches) < 30

    @pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
    def test_a_nan_fails_only_its_request_and_names_the_row(self, start, engine, make_request, make_sender, cls):
        senders = [make_sender() for _ in range(3)]
        requests = [
            make_request(2, 1, tag=tag, cls=cls, sender=sender)
            for tag, sender in zip([1, NAN, 3], senders, strict=True)
        ]
        _, runner = self.run_together(start, engine, requests)
        runner.close()
        assert isinstance(senders[1].error(), NonFiniteError)
        assert str(senders[1].error()).startswith("embedding[0]: ")
        assert senders[0].embedding().tolist() == expected(requests[0])
        assert senders[2].embedding().tolist() == expected(requests[2])


class TestClose:
    def test_twice(self, start):
        _, runner = start()
        runner.close()
        runner.close()

    def test_everything_queued_is_answered_and_the_threads_end(self, start, engine, make_request, make_sender):
        scheduler, runner = start(token_budget=4)
        senders = [make_sender() for _ in range(40)]
        for sender in senders:
            scheduler.submit(make_request(2, 3, sender=sender))
        runner.close()
        assert all(sender.ended for sender in senders)
        assert Counter(len(sender.errors) for sender in senders) == {0: 40}
        assert not runner._thread.is_alive()

    def test_later_requests_are_refused(self, start, make_request):
        scheduler, runner = start()
        runner.close()
        with pytest.raises(ShuttingDownError):
            scheduler.submit(make_request(1))

    def test_requests_that_come_meanwhile_are_refused_or_answered(self, start, engine, make_request, make_sender):
        scheduler, runner = start(token_budget=1, max_in_flight=1, max_queued_tokens=1)
        engine.gate.clear()
        senders = [make_sender() for _ in range(12)]
        refused = []

        def submit(sender):
            try:
                scheduler.submit(make_request(1, sender=sender))
            except ShuttingDownError:
                refused.append(sender)

        threads = [threading.Thread(target=submit, args=(sender,)) for sender in senders]
        for thread in threads:
            thread.start()
        assert engine.stepped.acquire(timeout=PATIENCE_S)
        closing = threading.Thread(target=runner.close)
        closing.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        late = make_sender()
        while not scheduler._closed:
            time.sleep(0.001)
        submit(late)
        assert late in refused
        engine.gate.set()
        closing.join(PATIENCE_S)
        answered = [sender for sender in senders if sender.ended]
        assert len(answered) + len(refused) == 13
        assert not set(map(id, answered)) & set(map(id, refused))
