import threading

import pytest

from lazuli.triton.shared_memory import AnswerRoom, find_pool


class Pool:
    def __init__(self, free):
        self.free = free

    def free_memory(self):
        return self.free


def room(free, folder=0, patience_s=10.0):
    pool = Pool(free)
    return pool, AnswerRoom(pool, patience_s, lambda: folder)


def test_where_nothing_is_known_there_is_room():
    assert find_pool() is None  # this is no stub
    with AnswerRoom(None).reserve(10**12) as granted:
        assert granted


def test_with_plenty_several_send_at_once():
    _, plenty = room(16 << 20)
    with plenty.reserve(1000) as first, plenty.reserve(1000) as second:
        assert first
        assert second


@pytest.mark.parametrize(("free", "folder", "granted"), [(1 << 20, 0, True), (1000, 0, False), (1000, 17 << 20, True)])
def test_a_region_has_room_or_can_grow(free, folder, granted):
    _, tight = room(free, folder, patience_s=0.02)
    with tight.reserve(100_000) as seen:
        assert seen is granted


def test_who_finds_no_room_waits_until_others_have_left():
    pool, tight = room(1000)
    sent = threading.Event()

    def send():
        with tight.reserve(100_000) as granted:
            assert granted
            sent.set()

    thread = threading.Thread(target=send)
    thread.start()
    assert not sent.wait(0.05)
    pool.free = 1 << 20
    assert sent.wait(10)
    thread.join()


def test_what_one_has_found_no_other_takes():
    pool, tight = room(1 << 20)
    inside = threading.Event()

    def send():
        with tight.reserve(300_000):
            inside.set()

    with tight.reserve(300_000):
        thread = threading.Thread(target=send)
        thread.start()
        assert not inside.wait(0.05)
        pool.free = 1 << 19  # the first has sent; too little is left for the other
    assert not inside.wait(0.05)
    pool.free = 1 << 20
    assert inside.wait(10)
    thread.join()
