"""Tables of where the time of a request goes: a row for each part, a column for each way and length.

Takes the lines of the suite `parts`. Used by `report.py`.
"""

from collections.abc import Sequence

from reporting.results import Line
from reporting.tables import LEAST_FOR_TAILS, rows

PARTS = "parts"


def parts_tables(lines: Sequence[Line]) -> list[str]:
    """A title and a Markdown table: medians in ms, p99 in parentheses where it was measured."""
    columns = list(dict.fromkeys((line["protocol"], line["len"]) for line in lines))
    by_part: dict[str, dict[tuple[str, int], Line]] = {}
    for line in lines:
        by_part.setdefault(line["note"], {})[line["protocol"], line["len"]] = line
    head = ["part", *(f"{protocol}, {length} tokens" for protocol, length in columns)]
    body = [[part, *(_cell(found.get(column)) for column in columns)] for part, found in by_part.items()]
    return ["parts of a request, ms: p50 (p99)", rows([head, *body])]


def _cell(line: Line | None) -> str:
    if line is None:
        return ""
    tail = f" ({line['p99_ms']:.2f})" if len(line["samples_ms"]) >= LEAST_FOR_TAILS else ""
    return f"{line['p50_ms']:.2f}{tail}"
