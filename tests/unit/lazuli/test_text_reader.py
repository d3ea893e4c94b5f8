"""Whose texts threads share, and when each call reads its own on the thread that it came on."""

import re
import threading

import pytest

from lazuli.text_reader import TextReader

TEXTS = ["1 " * 3000, "2 " * 7000]


class Digits:
    """An id for each digit; notes the calls, and lets them wait."""

    name = "digits"
    chars_for_threads = 100
    many = None
    boundary = re.compile(r" (?=\d)")

    def __init__(self):
        self.calls = []
        self.inside = threading.Semaphore(0)
        self.may_go_on = threading.Event()

    def encode(self, texts):
        self.calls.append(list(texts))
        self.inside.release()
        assert self.may_go_on.wait(60)
        return [[int(word) for word in text.split()] for text in texts]


def read_beside_others(num_others, threads=4):
    """What calls a reading makes while so many others are under way; and their ids, all of them."""
    encoder = Digits()
    reader = TextReader(encoder, 512, threads)
    results = []
    readings = [threading.Thread(target=lambda: results.append(reader.read(TEXTS))) for _ in range(1 + num_others)]
    for reading in readings[:-1]:
        reading.start()
        assert encoder.inside.acquire(timeout=60)
    before = len(encoder.calls)
    readings[-1].start()
    assert encoder.inside.acquire(timeout=60)
    own = encoder.calls[before]
    encoder.may_go_on.set()
    for reading in readings:
        reading.join(60)
    assert results == [[[1] * 3000, [2] * 7000]] * (1 + num_others)
    assert reader._num_reading == 0
    return own


def test_alone_it_has_all_threads():
    assert len(read_beside_others(0)) > 8


def test_beside_another_it_has_half_of_them_and_larger_pieces():
    assert 4 < len(read_beside_others(1)) < 9


def test_with_a_thread_each_nothing_is_cut_or_shared():
    assert read_beside_others(3) == TEXTS[:1]
    assert read_beside_others(7) == TEXTS[:1]


def test_what_fails_is_no_longer_counted():
    encoder = Digits()
    encoder.may_go_on.set()
    reader = TextReader(encoder, 512, 4)
    with pytest.raises(ValueError, match="invalid literal"):
        reader.read(["x " * 500])
    assert reader._num_reading == 0
