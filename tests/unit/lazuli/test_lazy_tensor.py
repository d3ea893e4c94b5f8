import threading

import numpy as np
import pytest
import torch

from lazuli import lazy_tensor
from lazuli.lazy_tensor import CudaTensor, HostTensor, PinnedPool


class TestHostTensor:
    def test_it_is_ready_and_gives_the_values(self):
        values = torch.arange(6, dtype=torch.float32).reshape(2, 3)
        tensor = HostTensor(values)
        assert tensor.is_ready()
        assert tensor.result().tolist() == values.tolist()
        assert tensor.result().dtype == np.float32

    def test_a_tensor_of_inference_mode(self):
        with torch.inference_mode():
            values = torch.ones(2, 2)
        assert HostTensor(values).result().tolist() == [[1, 1], [1, 1]]


class TestPinnedPool:
    def test_buffers_have_the_size(self):
        buffer = PinnedPool((24,), torch.uint8, pin_memory=False).take()
        assert (buffer.dtype, buffer.shape) == (torch.uint8, (24,))

    def test_two_that_are_out_are_two(self):
        pool = PinnedPool((8,), torch.uint8, pin_memory=False)
        first, second = pool.take(), pool.take()
        assert first.data_ptr() != second.data_ptr()

    def test_one_that_came_back_is_used_again(self):
        pool = PinnedPool((8,), torch.uint8, pin_memory=False)
        first, second = pool.take(), pool.take()
        pool.give_back(first)
        assert pool.take() is first
        pool.give_back(second)
        pool.give_back(first)
        assert {id(pool.take()), id(pool.take())} == {id(first), id(second)}

    def test_reserved_buffers_are_the_ones_taken(self):
        pool = PinnedPool((8,), torch.uint8, pin_memory=False)
        pool.reserve(3)
        assert len({buffer.data_ptr() for buffer in pool._free}) == 3
        reserved = {id(buffer) for buffer in pool._free}
        assert {id(pool.take()) for _ in range(3)} == reserved

    def test_no_buffer_is_held_twice_under_concurrency(self):
        pool = PinnedPool((8,), torch.uint8, pin_memory=False)
        held, doubled, lock = set(), [], threading.Lock()

        def use():
            for _ in range(300):
                buffer = pool.take()
                with lock:
                    doubled.append(id(buffer) in held)
                    held.add(id(buffer))
                with lock:
                    held.discard(id(buffer))
                pool.give_back(buffer)

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not any(doubled)
        assert len(pool._free) <= 8


class FakeEvent:
    """Stands for a CUDA event; counts what is asked of it."""

    ready = True
    failure: Exception | None = None

    def __init__(self, blocking):
        self.blocking = blocking
        self.recorded = self.waited = 0

    def record(self):
        self.recorded += 1

    def query(self):
        return self.ready

    def synchronize(self):
        self.waited += 1
        if self.failure:
            raise self.failure


class TestUnderWay:
    """Buffers that the device may still read."""

    @pytest.fixture
    def events(self, monkeypatch):
        """One for each buffer that was lent, in order."""
        made = []

        class Event:
            def __init__(self):
                made.append(self)
                self.done = True

            def record(self):
                self.done = False

            def query(self):
                return self.done

        monkeypatch.setattr(lazy_tensor.torch.cuda, "Event", Event)
        return made

    @pytest.fixture
    def lend(self):
        pool = PinnedPool((16,), torch.uint8, pin_memory=False)

        def lend():
            buffer = pool.take()
            pool.give_back_after(buffer)
            return buffer.data_ptr()

        return lend

    def test_such_a_buffer_is_not_given_out(self, events, lend):
        assert len({lend(), lend()}) == 2

    def test_a_copied_buffer_is_used_again_the_oldest_first(self, events, lend):
        first, second = lend(), lend()
        events[0].done = events[1].done = True
        assert [lend(), lend()] == [first, second]

    def test_one_copy_at_a_time_needs_one_buffer(self, events, lend):
        used = set()
        for number in range(5):
            used.add(lend())
            events[number].done = True
        assert len(used) == 1

    def test_it_is_zeroed_and_of_the_size(self):
        assert PinnedPool((16,), torch.uint8, pin_memory=False).take().tolist() == [0] * 16


class TestCudaTensor:
    @pytest.fixture(autouse=True)
    def fake_event(self, monkeypatch):
        monkeypatch.setattr(lazy_tensor.torch.cuda, "Event", FakeEvent)

    @pytest.fixture
    def pools(self):
        return PinnedPool((4, 2), torch.float32, pin_memory=False), PinnedPool((16,), torch.uint8, pin_memory=False)

    def make(self, pools, values, spin=False):
        return CudaTensor(values, pools[0], pools[1].take(), pools[1], spin=spin)

    @pytest.mark.parametrize("spin", [True, False])
    def test_waiting_takes_a_core_only_if_it_may(self, pools, spin):
        assert self.make(pools, torch.ones(1, 1), spin)._event.blocking is not spin

    def test_values_of_fewer_bytes_than_the_buffer(self, pools):
        values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        assert self.make(pools, values).result().tolist() == values.tolist()

    def test_the_result_survives_the_next_user_of_the_buffer(self, pools):
        first = self.make(pools, torch.full((2, 2), 1.0)).result()
        second = self.make(pools, torch.full((2, 2), 2.0)).result()
        assert len(pools[0]._free) == 1
        assert first.tolist() == [[1.0] * 2] * 2
        assert second.tolist() == [[2.0] * 2] * 2

    def test_buffers_are_held_until_the_result_is_taken(self, pools):
        tensors = [self.make(pools, torch.full((1, 2), float(number))) for number in range(3)]
        assert (len(pools[0]._free), len(pools[1]._free)) == (0, 0)
        assert [tensor.result().tolist() for tensor in tensors] == [[[0, 0]], [[1, 1]], [[2, 2]]]
        assert (len(pools[0]._free), len(pools[1]._free)) == (3, 3)

    def test_the_event_is_waited_for(self, pools):
        tensor = self.make(pools, torch.ones(1, 1))
        assert (tensor._event.recorded, tensor._event.waited) == (1, 0)
        tensor.result()
        assert tensor._event.waited == 1

    @pytest.mark.parametrize("ready", [True, False])
    def test_is_ready_asks_the_event(self, pools, monkeypatch, ready):
        monkeypatch.setattr(FakeEvent, "ready", ready)
        assert self.make(pools, torch.ones(1, 1)).is_ready() is ready

    def test_a_failure_of_the_device_gives_the_buffers_back(self, pools, monkeypatch):
        tensor = self.make(pools, torch.ones(1, 1))
        monkeypatch.setattr(FakeEvent, "failure", RuntimeError("device lost"))
        with pytest.raises(RuntimeError, match="device lost"):
            tensor.result()
        assert (len(pools[0]._free), len(pools[1]._free)) == (1, 1)
