import numpy as np
import pytest

from lazuli_client import InvalidInputError
from lazuli_client.errors import InputTypeError
from lazuli_client.texts import as_text, as_texts, as_token_lists, check_stream


@pytest.mark.parametrize("texts", [["a", "b"], ("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], dtype=object)])
def test_forms_of_input(texts):
    assert as_texts(texts) == ["a", "b"]
    assert all(type(text) is str for text in as_texts(texts))


def test_one_string_is_one_text():
    assert as_texts("ab") == ["ab"]


@pytest.mark.parametrize("text", ["", "\0", "a\r\nb", "hello <|endoftext|> world", "\U0001f600"])
def test_odd_texts_pass_as_they_are(text):
    assert as_texts([text]) == [text]


@pytest.mark.parametrize("texts", [[], (), np.array([], dtype=object)])
def test_no_text_is_an_error(texts):
    with pytest.raises(InvalidInputError, match="there is no text"):
        as_texts(texts)


@pytest.mark.parametrize("item", [None, 3, b"bytes", ["nested"], float("nan")])
def test_an_item_that_is_no_string_is_named(item):
    with pytest.raises(InvalidInputError, match=r"text\[11\]: must be a string") as caught:
        as_texts(["fine", item], first_row=10)
    assert caught.value.row == 11


@pytest.mark.parametrize("texts", [b"bytes", 3, None])
def test_no_sequence(texts):
    with pytest.raises(InvalidInputError, match="must be a string or a sequence"):
        as_texts(texts)


def test_an_array_of_two_dimensions():
    with pytest.raises(InvalidInputError, match=r"shape \[1, 2\]"):
        as_texts(np.array([["a", "b"]]))


def test_a_lone_surrogate_is_named():
    with pytest.raises(InvalidInputError, match=r"text\[4\].*surrogate at character 2"):
        as_text("ab\ud800", 4)


def test_token_lists():
    rows = as_token_lists([[1, 2], np.array([3], np.int64)])
    assert [row.tolist() for row in rows] == [[1, 2], [3]]
    assert all(row.dtype == np.int32 for row in rows)
    assert len(as_token_lists(np.ones((3, 2), np.int32))) == 3


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([], "there is no row"),
        ([[1], []], r"input_ids\[1\]: there is no token"),
        ([[1], [0.5]], r"input_ids\[1\]: must hold integers"),
        ([[1], 3], r"input_ids\[1\]: must be a flat list"),
        ([[[1]]], r"input_ids\[0\]: must be a flat list"),
        ([[1, [2, 3]]], r"input_ids\[0\]: must be a flat list"),
        ([[2**40]], r"input_ids\[0\]: an id does not fit into 32 bits: 1099511627776$"),
        ([[5, -(2**40), 7]], r"input_ids\[0\]: an id does not fit into 32 bits: -1099511627776$"),
    ],
)
def test_bad_token_lists_are_named(rows, match):
    with pytest.raises(InvalidInputError, match=match):
        as_token_lists(rows)


@pytest.mark.parametrize("given", [{"a", "b"}, frozenset("a"), {"a": 1}, {"a": 1}.keys()])
@pytest.mark.parametrize("function", [as_texts, as_token_lists, check_stream])
def test_what_has_no_order_is_refused(function, given):
    with pytest.raises(TypeError, match="an ordered sequence is needed") as caught:
        function(given)
    assert isinstance(caught.value, InvalidInputError)


@pytest.mark.parametrize("given", [None, 3, b"bytes"])
@pytest.mark.parametrize("function", [as_texts, as_token_lists, check_stream])
def test_what_is_no_sequence_is_a_type_error(function, given):
    with pytest.raises(InputTypeError, match=f"(text|input_ids): must be .*, got {type(given).__name__}"):
        function(given)


def test_generators_and_values_have_an_order():
    assert as_texts(text for text in "ab") == ["a", "b"]
    assert as_texts({1: "a"}.values()) == ["a"]


async def _texts():
    yield "a"


def test_an_asynchronous_stream_is_for_the_asyncio_client_only():
    check_stream(_texts(), may_be_async=True)
    with pytest.raises(InputTypeError, match="got async_generator"):
        check_stream(_texts())
