"""What an error message shows of bytes and words from elsewhere."""

import pytest

from lazuli_client.quoting import shown


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (b"", "nothing"),
        (b" \r\n", "nothing"),
        (b"one\r\n\ttwo", "one two"),
        ("naïve".encode(), "naïve"),
        (b"\xff\x00\x1b[1m", r"\xff\x00\x1b[1m"),
        ("a\u200bb", r"a\u200bb"),
        (b"a" * 200, "a" * 200),
        (b"a" * 201, "a" * 200 + "..."),
        (b" " * 900 + b"a", "..."),
    ],
)
def test_shown(received, expected):
    assert shown(received) == expected
