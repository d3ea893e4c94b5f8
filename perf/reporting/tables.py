"""Markdown tables of timings.

Takes lines of one suite; returns text. A column is there if a line has it.
"""

import re
from collections.abc import Sequence

from reporting.results import Line

# In this order: key -> (title, format).
_COLUMNS = {
    "system": ("system", "{}"),
    "dtype": ("dtype", "{}"),
    "attention": ("attention", "{}"),
    "note": ("", "{}"),
    "protocol": ("protocol", "{}"),
    "len": ("tokens a text", "{}"),
    "batch": ("texts a request", "{}"),
    "texts": ("texts a pass", "{}"),
    "concurrency": ("concurrency", "{}"),
    "p50_ms": ("p50 ms", "{:.2f}"),
    "p90_ms": ("p90 ms", "{:.2f}"),
    "p99_ms": ("p99 ms", "{:.2f}"),
    "emb_per_s": ("texts/s", "{:.0f}"),
    "tokens_per_s": ("tokens/s", "{:,.0f}"),
    "speedup": ("against the first", "{:.2f}×"),
    "offered_per_s": ("offered requests/s", "{:.1f}"),
    "failed": ("failed", "{:.0f}"),
    "rss_mib": ("resident MiB", "{:,.0f}"),
    "shm_mib": ("shared memory MiB", "{:,.0f}"),
    "device_mib": ("device MiB", "{:,.0f}"),
    "longest_wait_s": ("longest wait s", "{:.1f}"),
    "min_cosine": ("least cosine", "{:.6f}"),
}
# Those that are said once, beside the table, where all of its lines are alike.
_SAID_ONCE = ("system", "dtype", "attention", "protocol")
_UNSAID = {("dtype", "any"), ("attention", "auto")}
_NUMBER = re.compile(r"[-+*\d.,×%()e ]*")
# With fewer samples a p99 is just the largest of them.
LEAST_FOR_TAILS = 50


def table(lines: Sequence[Line], without: Sequence[str] = ()) -> str:
    """What the lines have and what is worth a column."""
    lines = [_worth_showing(line) for line in where_from(lines)]
    columns = [key for key in _COLUMNS if key not in without and any(key in line for line in lines)]
    head = [_COLUMNS[key][0] for key in columns]
    return rows(
        [head, *([_COLUMNS[key][1].format(line[key]) if key in line else "" for key in columns] for line in lines)]
    )


def where_from(lines: Sequence[Line]) -> list[Line]:
    """The lines, which say of systems in process that they are, where others are reached by a protocol."""
    if not any("protocol" in line for line in lines):
        return list(lines)
    return [{"protocol": "in process"} | line for line in lines]


def common(lines: Sequence[Line]) -> tuple[list[str], str]:
    """The columns that say the same of all lines, and what they say."""
    keys = [key for key in _SAID_ONCE if len({line.get(key) for line in lines}) == 1]
    said = [(key, lines[0][key]) for key in keys if key in lines[0]]
    return keys, ", ".join(_say(key, value) for key, value in said if (key, value) not in _UNSAID)


def rows(cells: Sequence[Sequence[str]]) -> str:
    """A Markdown table, of which the first row is the head; columns of numbers are to the right."""
    head, *body = cells
    rule = ["---:" if all(_NUMBER.fullmatch(cell) for cell in column) else "---" for column in zip(*body, strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body])


def _say(key: str, value: str) -> str:
    return f"dtype {value}" if key == "dtype" else value


def _worth_showing(line: Line) -> Line:
    """Leave out percentiles of too few samples, and the size of a pass that is just one request."""
    hidden = set()
    if len(line["samples_ms"]) < LEAST_FOR_TAILS:
        hidden |= {"p90_ms", "p99_ms"}
    if line.get("texts") == line.get("batch", 1):
        hidden.add("texts")
    elif "batch" in line:
        hidden.add("p50_ms")  # of a pass of many requests: its rate says more
    return {key: value for key, value in line.items() if key not in hidden}
