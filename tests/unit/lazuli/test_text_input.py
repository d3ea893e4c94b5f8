import numpy as np
import pytest

from lazuli.errors import InputError
from lazuli.text_input import MAX_BYTES, decode_texts


def decode(*values):
    return decode_texts(np.array([[value] for value in values], dtype=np.object_))


@pytest.mark.parametrize(
    "text", ["", "hello\tworld", "NUL \x00 inside \ufffd", "日本語の文章です。", "مرحبا", "👩‍👩‍👧 x²"]
)
def test_utf_8(text):
    assert decode(text.encode(), b"x") == [text, "x"]


def test_strings_stay():
    assert decode("é", b"e") == ["é", "e"]


@pytest.mark.parametrize(
    ("value", "byte", "offset"),
    [
        (b"\xff", "ff", 0),
        (b"abc\xe9", "e9", 3),
        (b"ok \xc3(", "c3", 3),
        (b"\xed\xa0\x80", "ed", 0),
        (b"\xc0\x80", "c0", 0),
    ],
)
def test_invalid_utf_8_is_named_by_row_and_byte(value, byte, offset):
    with pytest.raises(InputError) as caught:
        decode(b"fine", value, b"\xfe")
    assert str(caught.value) == f"text[1]: not valid UTF-8, byte 0x{byte} at offset {offset}"


@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 0), (1, 1, 1), ()])
def test_a_wrong_shape_is_named(shape):
    with pytest.raises(InputError) as caught:
        decode_texts(np.full(shape, b"x", dtype=np.object_))
    assert str(caught.value) == f"text: the shape must be [N, 1], one text a row, got {list(shape)}"


def test_no_row_is_an_error():
    with pytest.raises(InputError, match=r"text: there is no text; at least 1 row is needed"):
        decode_texts(np.empty((0, 1), dtype=np.object_))


def test_the_name_of_the_field_is_the_callers():
    with pytest.raises(InputError, match=r"^query: the shape"):
        decode_texts(np.empty((2,), dtype=np.object_), name="query")


def test_too_much_text_is_refused_before_it_is_decoded():
    half = b"\xff" * (MAX_BYTES // 2)
    with pytest.raises(InputError, match=r"text: 67108865 bytes in all rows, but at most 67108864 are allowed"):
        decode(half, half, b"x")


def test_as_much_as_is_allowed_is_decoded():
    half = b"a" * (MAX_BYTES // 2)
    assert list(map(len, decode(half, half))) == [len(half), len(half)]
