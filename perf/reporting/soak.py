"""What a soak found: a row for each kind of request, a row for each process, and what all hold over time.

Takes the lines of the suite `soak`. Used by `report.py`.
"""

from collections.abc import Sequence

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from reporting.results import Line
from reporting.tables import rows

SOAK = "soak"
_HELD = {
    "rss_mib": "RSS, MiB",
    "threads": "threads",
    "files": "files",
    "shm_mib": "/dev/shm, MiB",
    "device_mib": "GPU, MiB",
}


def soak_parts(lines: Sequence[Line]) -> list[str]:
    """Two Markdown tables."""
    asked, held = [line for line in lines if "held" not in line], [line for line in lines if "held" in line]
    return [_of_requests(asked), _of_processes(held)]


def soak_plot(lines: Sequence[Line]) -> Figure:
    """Resident memory of each process over the requests."""
    figure, axes = plt.subplots(figsize=(8.0, 3.6))
    for line in lines:
        if "rss_mib" in line.get("held", {}) and "shm_mib" not in line["held"]:  # not all together
            axes.plot(line["requests"], line["held"]["rss_mib"], label=line["note"], linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("requests")
    axes.set_ylabel("RSS, MiB")
    axes.grid(color="#888888", alpha=0.25, linewidth=0.5)
    figure.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    figure.tight_layout()
    return figure


def _of_requests(lines: Sequence[Line]) -> str:
    head = ["requests", "number", "without an answer", "right to the bit", "p50 ms", "p99 ms"]
    body = []
    for line in lines:
        extra = line["extra"]
        exact = f"{extra['exact'] / extra['requests']:.1%}"
        number = f"{extra['requests']:,.0f}"
        body.append(
            [line["note"], number, f"{extra['lost']:.0f}", exact, f"{line['p50_ms']:.2f}", f"{line['p99_ms']:.2f}"]
        )
    total = sum(line["extra"]["requests"] for line in lines)
    return rows([head, *body, ["all", f"{total:,.0f}", "", "", "", ""]])


def _of_processes(lines: Sequence[Line]) -> str:
    """What each holds at the end, and in parentheses by how much that grew in 100,000 requests."""
    shown = {name: title for name, title in _HELD.items() if any(max(line["held"].get(name, [0])) for line in lines)}
    body = [[line["note"], *(_cell(line, name) for name in shown)] for line in lines]
    return rows([["at the end (growth in 100,000 requests)", *shown.values()], *body])


def _cell(line: Line, name: str) -> str:
    if name not in line["held"]:
        return ""
    mark = " **grows**" if name in line["grows"] else ""
    return f"{line['held'][name][-1]:,.0f} ({line['growth'][name]:+.1f}){mark}"
