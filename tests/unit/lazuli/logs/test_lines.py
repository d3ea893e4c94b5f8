import json
import logging

import pytest

from lazuli.logs.lines import JsonFormatter, TextFormatter

SECRET = "zebrafinch"


def record(message="it runs on %s", *arguments, level=logging.INFO, error=None, **more):
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("lazuli.engine", level, __file__, 1, message, arguments or ("cpu",), info)
    vars(made).update(more)
    return made


def raised(error, cause=None):
    """An error that was raised, by another one if there is a cause."""
    try:
        if cause is None:
            raise error
        try:
            raise cause
        except Exception as first:
            raise error from first
    except Exception as caught:
        return caught


def test_a_line_of_json_has_who_when_and_what():
    formatter = JsonFormatter({"model": "embedding", "instance": None, "pid": 7}, content=False)
    text = formatter.format(record(fields={"rows": 3}))
    line = json.loads(text)
    assert line.pop("time").endswith("Z")
    assert line == {
        "event": "it runs on cpu",
        "level": "info",
        "logger": "lazuli.engine",
        "model": "embedding",
        "pid": 7,
        "rows": 3,
    }


def test_it_is_one_line_whatever_is_said():
    error = raised(ValueError('two\nlines "quoted"'))
    text = JsonFormatter({}, content=False).format(record("a\nb %s", "c\r\u2028d", error=error))
    assert len(text.splitlines()) == 1 or "\u2028" in text
    assert "\n" not in text
    assert "\r" not in text
    assert json.loads(text)["event"] == "a\nb c\r\u2028d"
    assert json.loads(text)["exception"][0] == 'ValueError: two\nlines "quoted"'


def test_text_has_the_same():
    error = raised(ValueError("why"))
    text = TextFormatter(content=False).format(record(fields={"rows": 3}, error=error))
    first, second, third = text.split("\n")
    assert first == "it runs on cpu rows=3"
    assert second == "ValueError: why"
    assert third.startswith(f"  {__file__}:")
    assert third.endswith(" raised")


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("kind", ["json", "text"])
def test_a_private_exception_keeps_its_messages_unless_they_are_asked_for(kind, content):
    error = raised(ValueError(f"cannot read {SECRET}"), cause=KeyError(SECRET))
    formatter = JsonFormatter({}, content=content) if kind == "json" else TextFormatter(content=content)
    text = formatter.format(record(error=error, private=True))
    assert (SECRET in text) == content
    assert "KeyError" in text
    assert "ValueError" in text
    assert "raised" in text


def test_what_an_exception_came_from_is_told_first_and_once():
    error = raised(ValueError("b"), cause=KeyError("a"))
    error.__cause__.__cause__ = error  # a circle must end
    lines = json.loads(JsonFormatter({}, content=True).format(record(error=error)))["exception"]
    assert [line for line in lines if not line.startswith(" ")] == ["KeyError: 'a'", "ValueError: b"]


def test_a_context_that_was_suppressed_is_left_out():
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b") from None
    except ValueError as caught:
        lines = json.loads(JsonFormatter({}, content=True).format(record(error=caught)))["exception"]
    assert [line for line in lines if not line.startswith(" ")] == ["ValueError: b"]
