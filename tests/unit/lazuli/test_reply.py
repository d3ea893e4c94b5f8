import logging
import threading
from functools import partial

import numpy as np
import pytest

from lazuli.batch import RaggedBatch
from lazuli.errors import DeviceError
from lazuli.lazy_tensor import LazyTensor
from lazuli.reply import ReplyPool
from lazuli.request import StreamRequest, UnaryRequest

PATIENCE_S = 10.0


class FakeTensor(LazyTensor):
    """A result that arrives when the test says so."""

    def __init__(self, values, error=None, arrived=True):
        self._values = np.asarray(values, dtype=np.float32)
        self._error = error
        self.arrived = threading.Event()
        if arrived:
            self.arrived.set()

    def is_ready(self):
        return self.arrived.is_set()

    def result(self):
        assert self.arrived.wait(PATIENCE_S)
        if self._error:
            raise self._error
        return self._values


@pytest.fixture
def make_request(make_request):
    """Requests whose vectors have one dimension."""
    return partial(make_request, width=1)


@pytest.fixture
def pool():
    pool = ReplyPool(3)
    yield pool
    pool.close()


def sequences_of(*pairs):
    return [request.sequences[row] for request, row in pairs]


def test_rows_of_several_requests_in_any_order_find_their_request(pool, make_request, make_sender):
    senders = [make_sender() for _ in range(2)]
    first, second = (make_request(1, 1, 1, sender=sender) for sender in senders)
    order = [(second, 2), (first, 1), (second, 0), (first, 0), (first, 2), (second, 1)]
    values = [[10 * (request is second) + row] for request, row in order]
    pool.expect(FakeTensor(values), sequences_of(*order), lambda: None)
    assert senders[0].wait().embedding().tolist() == [[0], [1], [2]]
    assert senders[1].wait().embedding().tolist() == [[10], [11], [12]]


def test_a_request_over_several_batches_is_gathered(pool, make_request, make_sender):
    sender = make_sender()
    request = make_request(*[1] * 6, sender=sender)
    for rows in ([5], [0, 3], [4, 1, 2]):
        pool.expect(FakeTensor([[row] for row in rows]), sequences_of(*[(request, row) for row in rows]), lambda: None)
    assert sender.wait().embedding().tolist() == [[0], [1], [2], [3], [4], [5]]


def test_rows_of_a_part_are_ascending_int32(pool, make_request, make_sender):
    sender = make_sender()
    request = make_request(1, 1, 1, cls=StreamRequest, sender=sender)
    pool.expect(FakeTensor([[2], [0], [1]]), sequences_of((request, 2), (request, 0), (request, 1)), lambda: None)
    sender.wait()
    assert sender.parts[0].index.tolist() == [0, 1, 2]
    assert sender.parts[0].index.dtype == np.int32
    assert sender.embedding().tolist() == [[0], [1], [2]]


def test_the_slot_is_free_before_anything_is_sent(pool, make_request, make_sender):
    seen = []
    sender = make_sender()
    request = make_request(1, sender=sender)
    tensor = FakeTensor([[1]], arrived=False)
    pool.expect(tensor, request.sequences, lambda: seen.append(sender.ended))
    assert not seen
    tensor.arrived.set()
    sender.wait()
    assert seen == [False]


@pytest.mark.parametrize("error", [RuntimeError("lost"), MemoryError("host"), ValueError("odd")])
def test_a_result_that_fails_fails_its_requests_and_frees_the_slot(pool, make_request, make_sender, error):
    senders = [make_sender() for _ in range(3)]
    requests = [make_request(1, sender=sender) for sender in senders]
    freed = threading.Event()
    pool.expect(FakeTensor([], error=error), sequences_of((requests[0], 0), (requests[1], 0)), freed.set)
    pool.expect(FakeTensor([[7]]), requests[2].sequences, lambda: None)
    for sender in senders[:2]:
        assert isinstance(sender.wait().error(), DeviceError)
        assert str(error) in str(sender.error())
    assert freed.wait(PATIENCE_S)
    assert senders[2].wait().embedding().tolist() == [[7]]


def test_a_nan_fails_only_its_own_request(pool, make_request, make_sender):
    senders = [make_sender() for _ in range(2)]
    bad, good = (make_request(1, 1, sender=sender) for sender in senders)
    order = sequences_of((bad, 0), (good, 0), (good, 1), (bad, 1))
    pool.expect(FakeTensor([[1], [2], [3], [np.nan]]), order, lambda: None)
    assert str(senders[0].wait().error()).startswith("embedding[1]: ")
    assert senders[1].wait().embedding().tolist() == [[2], [3]]


def test_fail(pool, make_request, make_sender):
    sender = make_sender()
    pool.fail(make_request(1, sender=sender), DeviceError("why"))
    assert str(sender.wait().error()) == "why"


@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
def test_a_sender_that_raises_does_not_end_the_threads(make_request, make_sender, caplog, cls):
    class BrokenSender:
        def send(self, part, *, final):
            raise RuntimeError("the client is gone")

        def send_error(self, error):
            raise RuntimeError("the client is gone")

    pool = ReplyPool(1)
    with caplog.at_level(logging.ERROR, logger="lazuli.reply"):
        broken = [make_request(1, cls=cls, sender=BrokenSender()) for _ in range(3)]
        sender = make_sender()
        last = make_request(1, cls=cls, sender=sender)
        # First in its batch, alone in its batch, and failing: the thread must live on each time.
        shared = sequences_of((broken[0], 0), (broken[1], 0), (last, 0))
        pool.fail(broken[2], DeviceError("why"))
        pool.expect(FakeTensor([[1], [2], [3]]), shared, lambda: None)
        assert sender.wait().embedding().tolist() == [[3]]
        pool.close()
    assert len([record for record in caplog.records if "could not be sent" in record.message]) == 3


def test_close_finishes_what_tasks_add_and_ends_the_threads(make_request, make_sender):
    pool = ReplyPool(2)
    senders = [make_sender() for _ in range(20)]
    requests = [make_request(1, sender=sender) for sender in senders]
    tensor = FakeTensor([[number] for number in range(20)], arrived=False)
    pool.expect(tensor, [request.sequences[0] for request in requests], lambda: None)
    tensor.arrived.set()
    pool.close()
    assert all(sender.ended for sender in senders)
    assert not any(thread.is_alive() for thread in pool._threads)


def test_one_thread_more_than_batches_in_flight_sends_while_all_wait(make_request, make_sender):
    pool = ReplyPool(3)
    held = [FakeTensor([[0]], arrived=False) for _ in range(2)]
    waiting = [make_request(1) for _ in held]
    for tensor, request in zip(held, waiting, strict=True):
        pool.expect(tensor, request.sequences, lambda: None)
    sender = make_sender()
    pool.fail(make_request(1, sender=sender), DeviceError("answered meanwhile"))
    assert str(sender.wait().error()) == "answered meanwhile"
    for tensor in held:
        tensor.arrived.set()
    pool.close()
    assert all(request.done for request in waiting)


def test_the_order_of_a_batch_leads_back_to_the_rows(pool, make_request, make_sender):
    """As the runner does it: sequences of a packed batch, whose order is by length."""
    sender = make_sender()
    request = make_request(3, 1, 2, sender=sender)
    batch = RaggedBatch.pack([sequence.input_ids for sequence in request.sequences], [True] * 3)
    values = np.diff(batch.cu_seqlens)[:, None]  # a vector says how long its sequence was
    pool.expect(FakeTensor(values), [request.sequences[row] for row in batch.order], lambda: None)
    assert sender.wait().embedding().tolist() == [[3], [1], [2]]


def test_receive_delivers_in_the_calling_thread(pool, make_request):
    class Sender:
        def send(self, part, *, final):
            threads.append(threading.get_ident())

    threads, freed = [], []
    request = make_request(2, sender=Sender())
    pool.receive(FakeTensor([[1]]), request.sequences, lambda: freed.append(True))
    assert threads == [threading.get_ident()]
    assert freed == [True]


def test_an_answer_is_prepared_before_its_vectors_are_there(pool, make_request, make_sender):
    sender = make_sender()
    request = make_request(3, sender=sender)
    tensor = FakeTensor([[7]], arrived=False)
    prepared = threading.Event()
    sender.prepare = lambda part: prepared.set()
    pool.expect(tensor, request.sequences, lambda: None)
    assert prepared.wait(PATIENCE_S)
    tensor.arrived.set()
    assert sender.wait().embedding().tolist() == [[7]]


def test_an_answer_that_cannot_be_prepared_is_sent_all_the_same(pool, make_request, make_sender, caplog):
    def fail(part):
        raise RuntimeError("odd")

    sender = make_sender()
    sender.prepare = fail
    request = make_request(3, sender=sender)
    with caplog.at_level(logging.ERROR, logger="lazuli.reply"):
        pool.receive(FakeTensor([[7]]), request.sequences, lambda: None)
    assert sender.wait().embedding().tolist() == [[7]]
    assert "could not be prepared" in caplog.text
