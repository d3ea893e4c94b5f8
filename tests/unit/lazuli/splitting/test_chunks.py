from itertools import pairwise

import pytest

from lazuli.errors import InputError, OptionError
from lazuli.splitting.chunks import Frame, cut, part

NOTHING = Frame()


class TestCut:
    @pytest.mark.parametrize("overlap", [0, 1, 3, 6])
    @pytest.mark.parametrize("count", [8, 9, 13, 14, 15, 21, 100])
    def test_pieces_cover_the_text_with_this_overlap(self, count, overlap):
        pieces = cut(range(count), 7, NOTHING, overlap, "text[0]")
        assert [len(piece) for piece in pieces[:-1]] == [7] * (len(pieces) - 1)
        assert overlap < len(pieces[-1]) <= 7
        whole = list(pieces[0])
        for before, piece in pairwise(pieces):
            assert before[len(before) - overlap :] == piece[:overlap]
            whole += piece[overlap:]
        assert whole == list(range(count))

    def test_each_chunk_has_the_frame(self):
        chunks = cut([1, 2, 3, 4, 5], 6, Frame([9, 8], [7]), 1, "text[0]")
        assert chunks == [[9, 8, 1, 2, 3, 7], [9, 8, 3, 4, 5, 7]]

    @pytest.mark.parametrize(("limit", "frame", "expected"), [(40, 0, 4), (40, 33, 3), (9, 0, 0), (10, 0, 1)])
    def test_the_overlap_is_a_tenth_of_the_limit_if_that_fits(self, limit, frame, expected):
        first, second, *_ = cut(range(1000, 1100), limit, Frame([0] * frame), None, "text[0]")
        assert len(set(first) & set(second) - {0}) == expected

    def test_an_overlap_as_long_as_a_chunk(self):
        with pytest.raises(OptionError, match="overlap: 5, but a chunk has room for only 5 tokens of text"):
            cut(range(20), 7, Frame([1], [2]), 5, "text[3]")

    def test_a_frame_without_room(self):
        with pytest.raises(InputError, match=r"text\[3\]: its prompt leaves no room for text: 7 of at most 7 tokens"):
            cut(range(20), 7, Frame([1] * 7), None, "text[3]")


class TestPart:
    @pytest.mark.parametrize(
        ("ids", "before", "after", "expected"),
        [
            ([1, 2, 3, 4], [], [], ([], [1, 2, 3, 4], [])),
            ([1, 2, 3, 4], [1, 2], [], ([1, 2], [3, 4], [])),
            ([1, 2, 3, 4], [1], [4], ([1], [2, 3], [4])),
            ([1, 2, 3, 4], [1, 9], [9, 4], ([1], [2, 3], [4])),  # the tokenizer joined letters of both
            ([1, 2, 3, 4], [9], [9], ([], [1, 2, 3, 4], [])),
            ([1, 2], [1, 2, 3], [2], ([1, 2], [], [])),  # nothing is taken twice
            ([], [1], [1], ([], [], [])),
        ],
    )
    def test_the_prompt_and_the_text(self, ids, before, after, expected):
        frame, body = part(ids, before, after)
        assert (list(frame.before), list(body), list(frame.after)) == expected
