import numpy as np
import pytest

from lazuli.errors import InputError
from lazuli.segments import SEGMENT_BIT, mark_segments
from lazuli.token_input import TokenLimits, split_rows

SECOND = 1 << SEGMENT_BIT
IDS = np.array([[5, 6, 7, 8], [9, 1, 2, 0], [0, 0, 3, 4]], dtype=np.int32)
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]], dtype=np.int8)
TYPES = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 1]], dtype=np.int8)


def mark(types, num_segments=2, ids=IDS, mask=MASK):
    rows = split_rows(ids, mask, TokenLimits(100, 64))
    return mark_segments(rows, ids, mask, types, num_segments)


def test_tokens_of_the_second_segment_are_marked():
    rows = mark(TYPES)
    assert [row.tolist() for row in rows] == [
        [5, 6, 7 | SECOND, 8 | SECOND],
        [9, 1 | SECOND, 2 | SECOND],
        [3, 4 | SECOND],
    ]
    assert all(row.dtype == np.int32 for row in rows)
    assert all((row >= 0).all() for row in rows)


@pytest.mark.parametrize("types", [None, np.zeros_like(TYPES)])
def test_without_a_second_segment_ids_are_as_they_were(types):
    assert [row.tolist() for row in mark(types)] == [[5, 6, 7, 8], [9, 1, 2], [3, 4]]


def test_a_model_without_segments_gets_no_marks():
    assert [row.tolist() for row in mark(TYPES, num_segments=1)] == [[5, 6, 7, 8], [9, 1, 2], [3, 4]]


def test_what_lies_in_the_padding_does_not_count():
    types = np.where(MASK == 0, 7, TYPES).astype(np.int8)
    assert [row.tolist() for row in mark(types)] == [row.tolist() for row in mark(TYPES)]


@pytest.mark.parametrize("num_segments", [1, 2])
def test_another_type_is_refused(num_segments):
    types = TYPES.copy()
    types[1, 2] = 2
    with pytest.raises(InputError, match=r"token_type_ids\[1\]\[2\]: 2, but only 0 and 1 are allowed"):
        mark(types, num_segments)


def test_another_shape_is_refused():
    with pytest.raises(InputError, match=r"token_type_ids: the shape \[3, 3\] differs .* \[3, 4\]"):
        mark(TYPES[:, :3])
