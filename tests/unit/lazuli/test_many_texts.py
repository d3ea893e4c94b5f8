import re

import pytest

from lazuli.many_texts import ManyTexts, measure, share

WORDS = [f"word{number}" for number in range(1000)]


class FakeLibrary:
    """Takes so many seconds a character of a clock that it moves itself."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.seen = clock, seconds, []

    def __call__(self, texts):
        self.seen.append(list(texts))
        self.clock.time += self.seconds * sum(map(len, texts))
        return [[len(text)] for text in texts]


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


class TestMeasure:
    def test_what_is_slower_on_all_threads_is_left(self):
        clock = Clock()
        assert measure(FakeLibrary(clock, 1.0), FakeLibrary(clock, 0.9), WORDS, 4, clock) is None

    def test_what_is_quicker_is_taken_with_its_ratios(self):
        clock = Clock()
        many = measure(FakeLibrary(clock, 4.0), FakeLibrary(clock, 1.0), WORDS, 4, clock)
        assert many.threads == 4
        assert many.alone == pytest.approx(0.25)
        assert many.together == pytest.approx(0.25)

    def test_few_threads_are_not_even_tried(self):
        library = FakeLibrary(Clock(), 1.0)
        assert measure(library, library, WORDS, 3, library.clock) is None
        assert measure(library, library, [], 16, library.clock) is None
        assert not library.seen

    def test_all_texts_differ_and_keep_all_threads_busy(self):
        clock = Clock()
        quick = FakeLibrary(clock, 1.0)
        measure(quick, FakeLibrary(clock, 1.0), WORDS, 5, clock)
        texts = quick.seen[0]
        assert len(texts) == len(set(texts)) == 20
        assert all(len(set(text.split())) > 50 for text in texts)


class TestPays:
    """The reference takes four times as long for one text, and on all threads half as long for many."""

    many = ManyTexts(lambda texts: [[0]] * len(texts), 16, alone=4.0, together=0.5)

    @pytest.mark.parametrize(
        ("lengths", "expected"),
        [
            ([2000] * 50, True),
            ([100] * 50, False),  # over before threads are awake
            ([20_000], False),
            ([20_000] * 5, False),  # one thread takes as long for one of them as the quick library for four
            ([20_000] * 6, True),
            ([20_000, *[1000] * 50], False),
            ([20_000, *[1000] * 100], True),
        ],
    )
    def test_it_pays_if_no_text_is_too_long_for_one_thread(self, lengths, expected):
        assert self.many.pays(lengths) is expected


class TestShare:
    """Of an encoder that gives the number that each word is."""

    @staticmethod
    def encode(texts):
        return [[int(word) for word in text.split()] for text in texts]

    @pytest.mark.parametrize("threads", [1, 3, 16])
    @pytest.mark.parametrize("boundary", [None, re.compile(r"\d (?=\d)")])
    @pytest.mark.parametrize(("count", "words"), [(0, 0), (1, 0), (1, 2000), (5, 300), (97, 5), (40, 200)])
    def test_ids_stay_in_order(self, threads, boundary, count, words):
        texts = [" ".join(str(row * 10_000 + place) for place in range(words)) for row in range(count)]
        assert share(self.encode, threads, texts, boundary) == self.encode(texts)

    def test_one_long_text_is_cut_for_several_threads(self):
        calls = []

        def encode(texts):
            calls.append([len(text) for text in texts])
            return self.encode(texts)

        text = " ".join(map(str, range(5000)))
        share(encode, 4, [text], re.compile(r"\d (?=\d)"))
        (pieces,) = calls
        assert len(pieces) > 4
        assert max(pieces) < len(text) / 4
        calls.clear()
        share(encode, 4, [text])
        assert calls == [[len(text)]]

    def test_a_call_ends_after_some_milliseconds_so_that_others_have_their_turn(self):
        calls = []

        def encode(texts):
            calls.append(sum(map(len, texts)))
            return self.encode(texts)

        share(encode, 2, ["1 " * 1000] * 500)
        assert sum(calls) == 1_000_000
        assert max(calls) < 50_000
        assert min(calls[:-1]) >= 32_768

    def test_an_error_is_raised(self):
        with pytest.raises(ValueError, match="invalid literal"):
            share(self.encode, 2, ["1 " * 900, "2 " * 900, "x" * 900])
