"""Tables of kernels: one for each shape, a row for each batch and a column for each system, in microseconds.

Takes the lines of a result file whose level is `kernel`. Used by `report.py`.
"""

from typing import Any

from reporting.tables import rows

Line = dict[str, Any]


def kernel_tables(lines: list[Line]) -> list[str]:
    """A title and a Markdown table for each shape; the quickest of a row is bold, the plan is in parentheses."""
    systems = list(dict.fromkeys(line["system"] for line in lines))
    parts = []
    for shape in dict.fromkeys(line["model"] for line in lines):
        calls: dict[tuple[int, Any], dict[str, Line]] = {}
        for line in lines:
            if line["model"] == shape:
                calls.setdefault((line["batch"], line["len"]), {})[line["system"]] = line
        parts += [f"**{shape}, µs a call**", _table(calls, systems)]
    return parts


def _table(calls: dict[tuple[int, Any], dict[str, Line]], systems: list[str]) -> str:
    table = [["texts", "tokens a text", *systems]]
    for (batch, length), by_system in calls.items():
        quickest = min(line["p50_ms"] for line in by_system.values())
        cells = [_cell(by_system[name], quickest) if name in by_system else "" for name in systems]
        table.append([str(batch), str(length), *cells])
    return rows(table)


def _cell(line: Line, quickest: float) -> str:
    shown = f"{1e3 * line['p50_ms']:.1f}"
    if line["p50_ms"] == quickest:
        shown = f"**{shown}**"
    plan_us = line.get("extra", {}).get("plan_us", 0)
    return f"{shown} ({plan_us:.0f})" if plan_us >= 1 else shown
