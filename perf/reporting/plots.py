"""Plots of timings: which kind a suite has, and what is drawn.

Takes lines of one suite; returns a matplotlib figure, or None where a table says it all. Knows nothing of files.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.results import Line
from reporting.tables import LEAST_FOR_TAILS, where_from

INK, PAPER = "#24292f", "#fffffe"
# Of middling lightness, so that they show on white and on black. Lazuli's are blue.
_OURS = ("#3b7dd8", "#1fa6b8", "#7a6ff0", "#5b9bd5")
_OTHERS = ("#d9822b", "#8f8f8f", "#c25b8a", "#6a9f3f", "#b08c2a", "#a5673f")
_WIDTH = 8.0
# A line of samples in order wants some.
_LEAST_SAMPLES = 100

Series = dict[str, list[Line]]


def plot(lines: Sequence[Line]) -> Figure | None:
    """The figure of a suite."""
    lines = where_from(lines)
    kind = _KINDS.get(lines[0]["suite"])
    return kind(lines) if kind else None


def percentiles(lines: Sequence[Line], label: str | None = None) -> Figure | None:
    """p50 and p99 over the size of a request, a line for each system."""
    key = "batch" if lines[0]["suite"] == "scoring" else "len"
    places = list(dict.fromkeys(str(line[key]) for line in lines))
    series = _series(lines, label)
    if len(places) < 2 or len(lines) < 6:
        return None
    figure, axes = _figure(4.2)
    for (name, members), colour in zip(series.items(), _colours(series), strict=True):
        at = [places.index(str(line[key])) for line in members]
        axes.plot(at, [line["p50_ms"] for line in members], "o-", color=colour, label=name, markersize=4)
        axes.plot(at, [_tail(line) for line in members], ":", color=colour, linewidth=1)
    axes.set_xticks(range(len(places)), places)
    axes.set_xlabel("texts a request" if key == "batch" else "tokens a text")
    _in_ms(axes, "ms: p50, dotted p99")
    return _with_legend(figure, axes)


def scaling(lines: Sequence[Line]) -> Figure:
    """Texts a second over the number of clients, and p99 over texts a second."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(_WIDTH, 3.8), sharex=False)
    series = _series(lines, extra="len" if len({line.get("len") for line in lines}) > 1 else None)
    for (name, members), colour in zip(series.items(), _colours(series), strict=True):
        rates = [line["emb_per_s"] for line in members]
        left.plot([line["concurrency"] for line in members], rates, "o-", color=colour, label=name, markersize=4)
        right.plot(rates, [line["p99_ms"] for line in members], "o-", color=colour, markersize=4)
    left.set_xscale("log", base=2)
    clients = sorted({line["concurrency"] for line in lines})
    left.set_xticks(clients, [str(number) for number in clients])
    left.set_xlabel("requests in flight")
    left.set_ylabel("texts/s")
    left.set_ylim(bottom=0)
    right.set_xlabel("texts/s")
    _in_ms(right, "ms: p99")
    return _with_legend(figure, left, right)


def arrivals(lines: Sequence[Line]) -> Figure | None:
    """p50 and p99 over how much is asked of a system."""
    offered = [line for line in lines if "offered_per_s" in line.get("extra", {})]
    if len(offered) < 2:
        return None
    figure, axes = _figure(4.2)
    series = _series(offered)
    for (name, members), colour in zip(series.items(), _colours(series), strict=True):
        at = [line["extra"]["offered_per_s"] for line in members]
        axes.plot(at, [line["p50_ms"] for line in members], "o-", color=colour, label=name, markersize=4)
        axes.plot(at, [line["p99_ms"] for line in members], "^:", color=colour, linewidth=1, markersize=4)
    axes.set_xlabel("requests a second, at the times of a Poisson process")
    _in_ms(axes, "ms from when it was due: p50, dotted p99")
    return _with_legend(figure, axes)


def warm_up(lines: Sequence[Line], label: str | None = None) -> Figure | None:
    """The time of each request in the order in which they were sent."""
    series = {
        name: max(members, key=lambda line: len(line["samples_ms"])) for name, members in _series(lines, label).items()
    }
    series = {name: line for name, line in series.items() if len(line["samples_ms"]) >= _LEAST_SAMPLES}
    if not series:
        return None
    figure, axes = _figure(4.2)
    for (name, line), colour in zip(series.items(), _colours(series), strict=True):
        starts = int(line.get("extra", {}).get("starts", 1))
        samples = line["samples_ms"][: len(line["samples_ms"]) // starts]
        axes.plot(range(1, len(samples) + 1), samples, color=colour, label=name, linewidth=1)
    axes.set_xlabel("number of the request")
    _in_ms(axes, "ms")
    return _with_legend(figure, axes)


def memory(lines: Sequence[Line]) -> Figure:
    """What a system holds over the time of load."""
    figure, axes = _figure(3.8)
    series = _series(lines)
    for (name, members), colour in zip(series.items(), _colours(series), strict=True):
        at = [line["extra"]["loaded_s"] for line in members]
        axes.plot(at, [line["extra"]["rss_mib"] for line in members], "o-", color=colour, label=name, markersize=4)
    axes.set_xlabel("s of load")
    axes.set_ylabel("MiB resident")
    axes.set_ylim(bottom=0)
    return _with_legend(figure, axes)


def bars(lines: Sequence[Line]) -> Figure | None:
    """p50 with whiskers to p99, or texts a second where many texts are what counts; a bar a line."""
    if len(lines) < 2:
        return None
    by_rate = lines[0]["suite"] == "throughput"
    figure, axes = _figure(0.3 * len(lines) + 1.0)
    names = list(dict.fromkeys(_name(line, lines) for line in lines))
    shades = dict(zip(names, _colours(names), strict=True))
    colours = [shades[_name(line, lines)] for line in lines]
    if by_rate:
        axes.barh(range(len(lines)), [line["emb_per_s"] for line in lines], color=colours)
    else:
        p50 = [line["p50_ms"] for line in lines]
        tails = [[0.0] * len(lines), [max(0.0, _tail(line) - line["p50_ms"]) for line in lines]]
        axes.barh(range(len(lines)), p50, xerr=tails, color=colours, ecolor=INK, capsize=2)
    axes.set_yticks(range(len(lines)), [_bar_label(line, lines) for line in lines])
    axes.invert_yaxis()
    axes.set_xlabel("texts/s" if by_rate else "ms: p50, whisker to p99")
    return figure


_KINDS: dict[str, Callable[[Sequence[Line]], Figure | None]] = {
    "latency": percentiles,
    "scoring": percentiles,
    "throughput": bars,
    "concurrency": scaling,
    "arrivals": arrivals,
    "mixed": bars,
    "start": bars,
    "first": warm_up,
    "memory": memory,
    "locust": bars,
    "gateway": bars,
    "recovery": bars,
}


def _figure(height: float) -> tuple[Figure, Axes]:
    return plt.subplots(figsize=(_WIDTH, height))


def _in_ms(axes: Axes, label: str) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "25" else "")
    axes.set_ylabel(label)


def _with_legend(figure: Figure, *panels: Axes) -> Figure:
    for axes in panels:
        axes.grid(color="#888888", alpha=0.25, linewidth=0.5)
    handles, labels = panels[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(
            handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(3, len(labels)), frameon=False
        )
    figure.tight_layout()
    return figure


def _series(lines: Sequence[Line], label: str | None = None, extra: str | None = None) -> Series:
    """The lines of each system, in order; by `label` where that is what tells them apart."""
    series: Series = {}
    for line in lines:
        name = str(line[label]) if label else _name(line, lines)
        if extra:
            name = f"{name}, {line[extra]} tokens"
        series.setdefault(name, []).append(line)
    return series


def _name(line: Line, among: Sequence[Line]) -> str:
    """What of system, dtype and protocol is not the same for all."""
    keys = [key for key in ("system", "dtype", "protocol") if _differs(key, among)] or ["system"]
    return " ".join(str(line[key]) for key in keys if key in line)


def _bar_label(line: Line, among: Sequence[Line]) -> str:
    sizes = [
        f"{line[key]} {unit}"
        for key, unit in (("len", "tokens"), ("batch", "texts"))
        if _differs(key, among) and key in line
    ]
    note = [str(line["note"])] if _differs("note", among) and "note" in line else []
    name = [_name(line, among)] if any(_differs(key, among) for key in ("system", "dtype", "protocol")) else []
    return ", ".join([*name, *sizes, *note])


def _tail(line: Line) -> float:
    """p99, if there are enough samples for one."""
    return float(line["p99_ms"]) if len(line["samples_ms"]) >= LEAST_FOR_TAILS else math.nan


def _differs(key: str, among: Sequence[Line]) -> bool:
    return len({str(line.get(key)) for line in among}) > 1


def _colours(names: Any) -> list[str]:
    """One for each name: blues for Lazuli, others for others; all of them where there is nothing but Lazuli."""
    names = list(names)
    alone = all(name.startswith("lazuli") for name in names) or not any(name.startswith("lazuli") for name in names)
    if alone:
        every = (*_OURS[:1], *_OTHERS[:1], *_OURS[1:3], *_OTHERS[1:], *_OURS[3:])
        return [every[place % len(every)] for place in range(len(names))]
    chosen, ours, others = [], 0, 0
    for name in names:
        if name.startswith("lazuli"):
            chosen.append(_OURS[ours % len(_OURS)])
            ours += 1
        else:
            chosen.append(_OTHERS[others % len(_OTHERS)])
            others += 1
    return chosen
