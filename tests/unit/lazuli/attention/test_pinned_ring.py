from lazuli.attention.pinned_ring import PinnedRing


class Event:
    def __init__(self):
        self.done = True

    def record(self):
        self.done = False

    def query(self):
        return self.done


def make_ring():
    return PinnedRing(16, pin_memory=False, make_event=Event)


def take(ring):
    buffer, event = ring.take()
    event.record()
    return buffer, event


def test_a_buffer_under_way_is_not_given_out():
    ring = make_ring()
    (first, _), (second, _) = take(ring), take(ring)
    assert first.data_ptr() != second.data_ptr()
    assert len(ring) == 2


def test_a_copied_buffer_is_used_again_the_oldest_first():
    ring = make_ring()
    (first, first_copy), (second, second_copy) = take(ring), take(ring)
    first_copy.done = second_copy.done = True
    assert take(ring)[0].data_ptr() == first.data_ptr()
    assert take(ring)[0].data_ptr() == second.data_ptr()
    assert len(ring) == 2


def test_one_copy_at_a_time_needs_one_buffer():
    ring = make_ring()
    for _ in range(5):
        _, copy = take(ring)
        copy.done = True
    assert len(ring) == 1


def test_it_is_zeroed_and_of_the_size():
    buffer, _ = make_ring().take()
    assert buffer.tolist() == [0] * 16
