import numpy as np
import pytest

from lazuli.errors import InputError
from lazuli.token_input import TokenLimits, split_chunks, split_rows

LIMITS = TokenLimits(vocab_size=100, max_positions=5)


def split(ids, mask, limits=LIMITS):
    rows = split_rows(np.array(ids, dtype=np.int32), np.array(mask, dtype=np.int8), limits)
    return [row.tolist() for row in rows]


def refusal(ids, mask):
    with pytest.raises(InputError) as caught:
        split(ids, mask)
    return str(caught.value)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1, 1, 1, 1], [7, 8, 9, 10]),
        ([1, 1, 0, 0], [7, 8]),
        ([0, 0, 1, 1], [9, 10]),
        ([0, 1, 1, 0], [8, 9]),
        ([0, 0, 0, 1], [10]),
        ([1, 0, 0, 0], [7]),
    ],
)
def test_padding_at_either_side_is_left_out(mask, expected):
    assert split([[7, 8, 9, 10]], [mask]) == [expected]


def test_each_row_has_its_own_padding():
    assert split([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[0, 1, 1], [1, 0, 0], [1, 1, 1]]) == [
        [2, 3],
        [4],
        [7, 8, 9],
    ]


def test_the_rows_are_int32():
    (row,) = split_rows(np.ones((1, 2), np.int32), np.ones((1, 2), np.int8), LIMITS)
    assert row.dtype == np.int32


def test_rows_without_padding():
    assert split([[1, 2, 3], [4, 5, 6]], [[1] * 3] * 2) == [[1, 2, 3], [4, 5, 6]]


def test_other_masks_with_a_byte_sum_of_ones_are_looked_at():
    assert refusal([[1, 2]], [[0, 2]]) == "attention_mask[0][1]: 2, but only 0 and 1 are allowed"


@pytest.mark.parametrize("garbage", [-1, 100, 2**31 - 1, -(2**31)])
def test_ids_under_the_padding_are_ignored(garbage):
    assert split([[garbage, 3, garbage]], [[0, 1, 0]]) == [[3]]


@pytest.mark.parametrize("identifier", [0, 99])
def test_the_edges_of_the_vocabulary(identifier):
    assert split([[identifier]], [[1]]) == [[identifier]]


@pytest.mark.parametrize("identifier", [-1, 100, 2**31 - 1, -(2**31)])
def test_an_id_outside_the_vocabulary_is_named(identifier):
    message = refusal([[1, 2], [3, identifier]], [[1, 1], [1, 1]])
    assert message == f"input_ids[1][1]: {identifier}, but the vocabulary has ids 0 to 99"


@pytest.mark.parametrize("identifier", [-1, 100, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("length", [1, 256, 257])
def test_an_id_outside_the_vocabulary_is_named_in_rows_without_padding(identifier, length):
    limits = TokenLimits(vocab_size=100, max_positions=300)
    ids = np.full((1, length), 99, dtype=np.int32)
    assert [row.tolist() for row in split_rows(ids, np.ones(ids.shape, np.int8), limits)] == ids.tolist()
    ids[0, -1] = identifier
    with pytest.raises(InputError, match=rf"input_ids\[0\]\[{length - 1}\]: {identifier}, but"):
        split_rows(ids, np.ones(ids.shape, np.int8), limits)


@pytest.mark.parametrize(
    ("mask", "column"), [([1, 0, 1, 1], 1), ([1, 1, 0, 1], 2), ([0, 1, 0, 1], 2), ([1, 0, 0, 1], 1)]
)
def test_a_hole_is_named(mask, column):
    message = refusal([[1, 2, 3, 4]] * 2, [[1, 1, 1, 1], mask])
    assert message == f"attention_mask[1][{column}]: 0 between ones; the tokens of a row must be contiguous"


def test_an_all_zero_row_is_named():
    message = refusal([[1, 2]] * 3, [[1, 1], [1, 0], [0, 0]])
    assert message == "attention_mask[2]: all zero, so there is no token to embed"


@pytest.mark.parametrize("value", [-1, 2, 127, -128])
def test_other_values_than_0_and_1_are_named(value):
    message = refusal([[1, 2]] * 2, [[1, 1], [1, value]])
    assert message == f"attention_mask[1][1]: {value}, but only 0 and 1 are allowed"


def test_length_limit():
    assert split([[1] * 4], [[1] * 4]) == [[1] * 4]
    assert split([[1] * 5], [[1] * 5]) == [[1] * 5]
    message = refusal([[1] * 6] * 2, [[1] * 5 + [0], [1] * 6])
    assert message == "input_ids[1]: 6 tokens, but the model takes at most 5"


def test_the_length_counts_tokens_not_padding():
    assert split([[1] * 300], [[0] * 295 + [1] * 5]) == [[1] * 5]


def test_a_long_row_does_not_overflow_the_int8_sum():
    limits = TokenLimits(vocab_size=100, max_positions=1000)
    assert len(split([[1] * 300], [[1] * 300], limits)[0]) == 300


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        ((4,), (4,), "input_ids: the shape must be [N, S], got [4]"),
        ((1, 2, 2), (1, 2, 2), "input_ids: the shape must be [N, S], got [1, 2, 2]"),
        ((2, 3), (2, 2), "attention_mask: the shape [2, 2] differs from that of input_ids, [2, 3]"),
        ((2, 3), (3, 2), "attention_mask: the shape [3, 2] differs from that of input_ids, [2, 3]"),
        ((2, 3), (6,), "attention_mask: the shape [6] differs from that of input_ids, [2, 3]"),
        ((0, 3), (0, 3), "input_ids: the shape [0, 3] holds no token"),
        ((2, 0), (2, 0), "input_ids: the shape [2, 0] holds no token"),
    ],
)
def test_a_wrong_shape_is_named(ids, mask, message):
    with pytest.raises(InputError) as caught:
        split_rows(np.ones(ids, np.int32), np.ones(mask, np.int8), LIMITS)
    assert str(caught.value) == message


class TestChunks:
    def split(self, ids, mask, limits=LIMITS):
        return split_chunks(np.array(ids, dtype=np.int32), np.array(mask, dtype=np.int8), limits)

    def refusal(self, ids, mask):
        with pytest.raises(InputError) as caught:
            self.split(ids, mask)
        return str(caught.value)

    def test_rows_of_one_chunk_each(self):
        chunked = self.split([[1, 2], [3, 4]], [[1, 1], [1, 0]])
        assert [row.tolist() for row in chunked.rows] == [[1, 2], [3]]
        assert chunked.starts is None

    def test_where_further_chunks_begin(self):
        mask = [[1, 1, 2, 1, 1, 2, 0, 0], [0, 0, 0, 0, 1, 2, 2, 2], [0, 1, 1, 0, 0, 0, 0, 0]]
        chunked = self.split([[1, 2, 3, 4, 5, 6, 7, 8]] * 3, mask)
        assert [row.tolist() for row in chunked.rows] == [[1, 2, 3, 4, 5, 6], [5, 6, 7, 8], [2, 3]]
        assert [starts.tolist() for starts in chunked.starts] == [[2, 5], [1, 2, 3], []]

    def test_the_limit_is_that_of_a_chunk(self):
        chunked = self.split([[1] * 10], [[1, 1, 1, 1, 1, 2, 1, 1, 1, 1]])
        assert [starts.tolist() for starts in chunked.starts] == [[5]]
        message = self.refusal([[1] * 10] * 2, [[1] * 4 + [2] + [0] * 5, [1, 1, 1, 1, 2, 1, 1, 1, 1, 1]])
        assert message == "input_ids[1]: a chunk of 6 tokens, but the model takes at most 5"
        message = self.refusal([[1] * 10], [[1, 1, 1, 1, 1, 1, 2, 1, 1, 1]])
        assert message == "input_ids[0]: a chunk of 6 tokens, but the model takes at most 5"

    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            ([2, 1, 1], "attention_mask[1]: 2 at its first token, but that begins no further chunk"),
            ([0, 2, 1], "attention_mask[1]: 2 at its first token, but that begins no further chunk"),
            ([2, 3, 1], "attention_mask[1][1]: 3, but only 0, 1 and 2 are allowed"),
            ([2, -1, 1], "attention_mask[1][1]: -1, but only 0, 1 and 2 are allowed"),
            ([1, 0, 2], "attention_mask[1][1]: 0 between ones; the tokens of a row must be contiguous"),
            ([0, 0, 0], "attention_mask[1]: all zero, so there is no token to embed"),
        ],
    )
    def test_a_bad_mask_is_named(self, mask, message):
        assert self.refusal([[1, 2, 3]] * 2, [[1, 2, 1], mask]) == message

    def test_an_id_outside_the_vocabulary_is_named(self):
        message = self.refusal([[1, 100]], [[1, 2]])
        assert message == "input_ids[0][1]: 100, but the vocabulary has ids 0 to 99"

    @pytest.mark.parametrize("shape", [(1, 2), (3,), (1, 3, 1)])
    def test_a_wrong_shape_is_named(self, shape):
        with pytest.raises(InputError, match="attention_mask: the shape"):
            split_chunks(np.ones((1, 3), np.int32), np.full(shape, 2, np.int8), LIMITS)
