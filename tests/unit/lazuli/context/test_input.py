import numpy as np
import pytest

from lazuli.context.input import NO_ROW, group_rows, name_rows, read_documents
from lazuli.errors import InputError
from lazuli.token_input import TokenLimits

LIMITS = TokenLimits(vocab_size=100, max_positions=6)


def read(ids, mask, document, limits=LIMITS):
    column = np.array(document, dtype=np.int32).reshape(-1, 1)
    return read_documents(np.array(ids, dtype=np.int32), np.array(mask, dtype=np.int8), column, limits)


def refusal(ids, mask, document):
    with pytest.raises(InputError) as caught:
        read(ids, mask, document)
    return str(caught.value)


def test_chunks_of_a_document_follow_each_other():
    first, second = read([[1, 2, 0], [9, 3, 4], [5, 0, 0]], [[1, 1, 0], [3, 1, 1], [1, 0, 0]], [7, 7, -1])
    assert first.input_ids.tolist() == [1, 2, 9, 3, 4]
    assert first.spans.tolist() == [2, 1, 2]
    assert first.rows.tolist() == [0, NO_ROW, 1]
    assert [chunk.tolist() for chunk in first.chunks] == [[1, 2], [3, 4]]
    assert (second.input_ids.tolist(), second.spans.tolist(), second.rows.tolist()) == ([5], [1], [2])
    assert {array.dtype for array in (first.input_ids, first.spans, first.rows)} == {np.dtype(np.int32)}


def test_what_is_between_may_stand_at_either_side():
    (document,) = read([[9, 9, 1, 9], [0, 2, 0, 0]], [[3, 3, 1, 3], [0, 1, 0, 0]], [0, 0])
    assert document.input_ids.tolist() == [9, 9, 1, 9, 2]
    assert document.spans.tolist() == [2, 1, 1, 1]
    assert document.rows.tolist() == [NO_ROW, 0, NO_ROW, 1]


def test_a_document_up_to_the_limit():
    (document,) = read([[1, 2, 3], [4, 5, 6]], [[1, 1, 1]] * 2, [1, 1])
    assert len(document.input_ids) == 6
    message = refusal([[1, 2, 3, 4], [4, 5, 6, 7]], [[1, 1, 1, 1], [1, 1, 1, 0]], [1, 1])
    assert message == "input_ids[0] to input_ids[1]: 7 tokens in one document, but the model takes at most 6"
    message = refusal([[1] * 7] * 2, [[1] + [0] * 6, [1] * 7], [1, 2])
    assert message == "input_ids[1]: 7 tokens in one document, but the model takes at most 6"


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([1, 2, 1], "attention_mask[1][1]: 2, but only 0, 1 and 3 are allowed"),
        ([1, -1, 1], "attention_mask[1][1]: -1, but only 0, 1 and 3 are allowed"),
        ([1, 3, 1], "attention_mask[1]: the ones of a row must be contiguous"),
        ([3, 3, 0], "attention_mask[1]: no 1, so there is no token to embed"),
        ([0, 0, 0], "attention_mask[1]: all zero, so there is no token to embed"),
        ([1, 0, 1], "attention_mask[1][1]: 0 between ones; the tokens of a row must be contiguous"),
    ],
)
def test_a_bad_mask_is_named(mask, message):
    assert refusal([[1, 2, 3]] * 2, [[1, 1, 1], mask], [0, 0]) == message


@pytest.mark.parametrize("identifier", [-1, 100])
def test_an_id_outside_the_vocabulary_is_named(identifier):
    message = refusal([[1], [identifier]], [[1], [3]], [0, 0])
    assert message == f"input_ids[1][0]: {identifier}, but the vocabulary has ids 0 to 99"


class TestGroups:
    def test_equal_neighbours(self):
        groups = group_rows(np.array([[4], [4], [0], [9], [9], [9]]), 6)
        assert groups == [range(2), range(2, 3), range(3, 6)]

    def test_a_document_in_two_places(self):
        with pytest.raises(InputError, match=r"document\[3\]: 4 again, but the rows of a document must be consecutive"):
            group_rows(np.array([[4], [4], [0], [4]]), 4)

    @pytest.mark.parametrize("shape", [(2,), (3, 1), (2, 2), ()])
    def test_a_wrong_shape(self, shape):
        with pytest.raises(InputError, match=r"document: the shape must be \[2, 1\], one number a row, got"):
            group_rows(np.zeros(shape, dtype=np.int32), 2)

    def test_their_names(self):
        assert name_rows("text", range(3, 4)) == "text[3]"
        assert name_rows("text", range(3, 6)) == "text[3] to text[5]"
