import threading

import numpy as np
import pytest

from lazuli.errors import DeviceError, NonFiniteError, ReplyError, RequestCancelledError
from lazuli.options import RequestOptions
from lazuli.outputs.dense import DenseModel
from lazuli.request import StreamRequest, UnaryRequest


def rows(*numbers):
    return np.array(numbers, dtype=np.int32)


def vectors(*numbers):
    """Row r gets the vector (r, 10 r)."""
    return np.array([[number, 10 * number] for number in numbers], dtype=np.float32)


def form(**options):
    return DenseModel(2, False).choose(RequestOptions(**options))


@pytest.fixture
def sender(make_sender):
    return make_sender()


class TestRequest:
    def test_sequences(self, make_request):
        request = make_request(3, 1, tag=7)
        assert [(sequence.row, len(sequence)) for sequence in request.sequences] == [(0, 3), (1, 1)]
        assert all(sequence.request is request for sequence in request.sequences)
        assert request.sequences[0].input_ids.tolist() == [7, 7, 7]
        assert request.num_tokens == 4
        assert not request.done

    def test_its_form_says_what_becomes_of_vectors(self, make_request):
        assert [make_request(1, normalize=flag).finish for flag in (False, True)] == [0, 1]


@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
def test_an_answer_that_cannot_be_sent_is_an_error_and_the_last_word(make_request, make_sender, cls):
    class FullMemory(make_sender):
        def send(self, part, *, final):
            raise RuntimeError("no space left on device")

    sender = FullMemory()
    request = make_request(1, 2, cls=cls, sender=sender)
    request.deliver(rows(0), vectors(0))
    if cls is StreamRequest:
        assert request.done
    request.deliver(rows(1), vectors(1))
    assert request.done
    assert isinstance(sender.error(), ReplyError)
    assert "could not be sent: no space left on device" in str(sender.error())
    request.fail(DeviceError("too late"))
    assert len(sender.errors) == 1


@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
class TestCancelled:
    def test_it_ends_and_what_comes_later_is_dropped(self, make_request, sender, cls):
        request = make_request(1, 2, cls=cls, sender=sender)
        assert not request.fail_if_cancelled()
        request.deliver(rows(0), vectors(0))
        sender.cancelled = True
        assert request.fail_if_cancelled()
        assert request.done
        request.deliver(rows(1), vectors(1))
        assert isinstance(sender.error(), RequestCancelledError)
        assert str(sender.error()) == "cancelled: the caller gave the request up"

    def test_only_once(self, make_request, sender, cls):
        request = make_request(1, cls=cls, sender=sender)
        sender.cancelled = True
        assert [request.fail_if_cancelled() for _ in range(3)] == [True, False, False]
        assert len(sender.errors) == 1

    def test_never_once_it_was_answered(self, make_request, sender, cls):
        request = make_request(1, cls=cls, sender=sender)
        request.deliver(rows(0), vectors(0))
        sender.cancelled = True
        assert not request.fail_if_cancelled()
        assert sender.embedding().tolist() == vectors(0).tolist()


class TestUnary:
    @pytest.mark.parametrize(
        "order",
        [[(0, 1, 2, 3)], [(3,), (1,), (0,), (2,)], [(2, 3), (0, 1)], [(0, 3), (1,), (2,)], [(1, 2, 3), (0,)]],
    )
    def test_batches_in_any_order_become_one_answer(self, make_request, sender, order):
        request = make_request(5, 6, 7, 8, sender=sender)
        for batch in order[:-1]:
            request.deliver(rows(*batch), vectors(*batch))
            assert not sender.parts
            assert not request.done
        request.deliver(rows(*order[-1]), vectors(*order[-1]))
        assert request.done
        assert len(sender.parts) == 1
        assert sender.embedding().tolist() == vectors(0, 1, 2, 3).tolist()
        assert sender.parts[0].index.tolist() == [0, 1, 2, 3]
        assert sender.parts[0].token_count.tolist() == [5, 6, 7, 8]

    def test_dtypes(self, make_request, sender):
        make_request(5, sender=sender).deliver(rows(0), vectors(0))
        part = sender.parts[0]
        assert (part.index.dtype, part.outputs["embedding"].dtype, part.token_count.dtype) == (
            np.int32,
            np.float32,
            np.int32,
        )

    def test_vectors_are_copied(self, make_request, sender):
        request = make_request(1, 1, sender=sender)
        first = vectors(0)
        request.deliver(rows(0), first)
        first.fill(-1)
        request.deliver(rows(1), vectors(1))
        assert sender.embedding().tolist() == vectors(0, 1).tolist()


class TestPrepare:
    def prepare(self, sender, num_rows=2, **options):
        request = UnaryRequest([rows(1, 2)] * num_rows, form(**options), sender)
        request.prepare()
        return request

    def test_the_very_part_that_was_prepared_is_sent(self, sender):
        request = self.prepare(sender)
        assert not sender.parts
        request.prepare()
        assert len(sender.prepared) == 1
        for row in (1, 0):
            request.deliver(rows(row), vectors(row))
        assert sender.parts[0] is sender.prepared[0]
        assert sender.embedding().tolist() == vectors(0, 1).tolist()
        assert sender.parts[0].token_count.tolist() == [2, 2]

    def test_its_vectors_have_the_length_that_was_asked_for(self, sender):
        request = self.prepare(sender, 1, dimensions=1)
        assert sender.prepared[0].outputs["embedding"].shape == (1, 1)
        request.deliver(rows(0), np.array([[3, 0]], dtype=np.float32))
        assert sender.embedding().tolist() == [[3]]

    def test_nothing_for_a_request_that_has_failed(self, sender):
        request = UnaryRequest([rows(1)], form(), sender)
        request.fail(DeviceError("why"))
        request.prepare()
        assert not sender.prepared

    def test_parts_are_not_known_ahead(self, sender):
        StreamRequest([rows(1)], form(), sender).prepare()
        assert not sender.prepared


class TestStream:
    def test_each_part_is_sent_at_once_and_the_last_is_final(self, make_request, sender):
        request = make_request(5, 6, 7, cls=StreamRequest, sender=sender)
        request.deliver(rows(1), vectors(1))
        assert sender.finals == [False]
        assert not request.done
        request.deliver(rows(0, 2), vectors(0, 2))
        assert sender.finals == [False, True]
        assert request.done
        assert [part.index.tolist() for part in sender.parts] == [[1], [0, 2]]
        assert [part.token_count.tolist() for part in sender.parts] == [[6], [5, 7]]
        assert sender.embedding().tolist() == vectors(0, 1, 2).tolist()

    def test_many_threads_deliver_and_the_final_part_comes_last(self, make_request, make_sender):
        for _ in range(20):
            sender = make_sender()
            request = make_request(*[1] * 16, cls=StreamRequest, sender=sender)
            barrier = threading.Barrier(8)

            def deliver(first, request=request, barrier=barrier):
                barrier.wait()
                request.deliver(rows(first, first + 8), vectors(first, first + 8))

            threads = [threading.Thread(target=deliver, args=(first,)) for first in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sender.embedding().tolist() == vectors(*range(16)).tolist()


@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
class TestFailures:
    def test_an_error_ends_the_request(self, make_request, sender, cls):
        request = make_request(1, 1, cls=cls, sender=sender)
        request.fail(DeviceError("why"))
        assert request.done
        assert str(sender.error()) == "why"

    def test_after_an_error_vectors_and_errors_are_ignored(self, make_request, sender, cls):
        request = make_request(1, 1, cls=cls, sender=sender)
        request.fail(DeviceError("first"))
        request.fail(DeviceError("second"))
        request.deliver(rows(0, 1), vectors(0, 1))
        assert str(sender.error()) == "first"
        assert not sender.parts

    def test_after_the_answer_errors_are_ignored(self, make_request, sender, cls):
        request = make_request(1, cls=cls, sender=sender)
        request.deliver(rows(0), vectors(0))
        request.fail(DeviceError("late"))
        assert sender.embedding().tolist() == vectors(0).tolist()

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_vector_that_is_not_finite_fails_the_request_and_names_the_row(self, make_request, sender, cls, bad):
        request = make_request(1, 1, 1, cls=cls, sender=sender)
        values = vectors(2, 1)
        values[1, 0] = bad
        request.deliver(rows(2, 1), values)
        error = sender.error()
        assert isinstance(error, NonFiniteError)
        assert str(error).startswith("embedding[1]: the model computed NaN or Inf")
        assert not sender.parts
        request.deliver(rows(0), vectors(0))
        assert not sender.after_end

    def test_an_error_and_an_answer_race_and_one_wins(self, make_request, make_sender, cls):
        for _ in range(50):
            sender = make_sender()
            request = make_request(1, cls=cls, sender=sender)
            barrier = threading.Barrier(2)

            def fail(request=request, barrier=barrier):
                barrier.wait()
                request.fail(DeviceError("why"))

            thread = threading.Thread(target=fail)
            thread.start()
            barrier.wait()
            request.deliver(rows(0), vectors(0))
            thread.join()
            assert len(sender.parts) + len(sender.errors) == 1
            assert not sender.after_end
