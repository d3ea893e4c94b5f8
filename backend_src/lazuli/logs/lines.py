"""Log records as lines.

Takes records of `logging`, returns text. A record may have two more attributes: `fields`, a mapping of what belongs to
the event, and `private`: the message of its exception may hold what a caller sent.
"""

import logging
from collections.abc import Iterator, Mapping
from traceback import StackSummary, walk_tb

from lazuli.launch.event_line import event_line


class JsonFormatter(logging.Formatter):
    """A JSON object a record, all in one line."""

    def __init__(self, ids: Mapping[str, object], *, content: bool) -> None:
        """Say what all lines hold.

        Args:
            ids: Fields of each line, such as the name of the model.
            content: Whether lines may hold what requests hold.
        """
        super().__init__()
        self._ids = {name: value for name, value in ids.items() if value is not None}
        self._content = content

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        fields: dict[str, object] = {"level": record.levelname.lower(), "logger": record.name, **self._ids}
        fields |= getattr(record, "fields", {})
        if exception := _exception_lines(record, self._content):
            fields["exception"] = exception
        return event_line(record.getMessage(), **fields)


class TextFormatter(logging.Formatter):
    """The message with its fields, then the lines of an exception."""

    def __init__(self, *, content: bool) -> None:
        """As `JsonFormatter`."""
        super().__init__()
        self._content = content

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        fields: Mapping[str, object] = getattr(record, "fields", {})
        message = " ".join([record.getMessage(), *(f"{name}={value}" for name, value in fields.items())])
        return "\n".join([message, *_exception_lines(record, self._content)])


def _exception_lines(record: logging.LogRecord, content: bool) -> list[str]:
    """The exceptions of a record, each with the calls that it came through, the first one first."""
    error = record.exc_info[1] if record.exc_info else None
    with_message = content or not getattr(record, "private", False)
    lines: list[str] = []
    for one in reversed(list(_chain(error))):
        lines.append(f"{type(one).__name__}: {one}" if with_message else type(one).__name__)
        # Without lines of source: those of a poor file would be looked up on disk.
        calls = StackSummary.extract(walk_tb(one.__traceback__), lookup_lines=False)
        lines += [f"  {call.filename}:{call.lineno} {call.name}" for call in calls]
    return lines


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
