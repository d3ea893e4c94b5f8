"""Turns `perf/results/<machine>/*.jsonl` into the tables and plots of README.md, perf/README.md and perf/models.

    make report

No figure is typed by hand: the parts of both files between `<!-- report -->` and `<!-- /report -->` are its, and those
of the pages of model families that `model_report.py` tells.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from kernel_report import kernel_tables
from model_pages import pages
from model_report import ACCURACY, accuracy_tables, fill_page
from tokenizer_report import tokenizer_tables

PERF = Path(__file__).parent
_MARKED = re.compile(r"(<!-- report -->\n).*?(<!-- /report -->)", re.DOTALL)
# Columns of a table, in this order, where any line has them: key -> (title, format).
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
    "min_cosine": ("least cosine", "{:.6f}"),
}

# What the front page shows, and under which title.
_FRONT_PAGE = {
    "cpu-2core/side_by_side_latency": "On two CPU cores, one text at a time, turn and turn about: {}",
    "cpu-2core/side_by_side_bulk": "On two CPU cores, many real texts of mixed lengths, turn and turn about: {}",
    "h200/engine_qwen3": "On the GPU, engine in process, random weights of the shape: {}",
    "h200/engine_bge_m3": "On the GPU, engine in process, random weights of the shape: {}",
    "h200/server_qwen3": "On the GPU, through the server, random weights of the shape: {}",
}
_FRONT_PAGE_SUITES = ("latency", "scoring", "throughput", "concurrency")
# Lengths of single texts that stand in perf/README.md alone.
_BETWEEN = (8, 32, 64, 256)
# With fewer samples a p99 is just the largest of them.
_LEAST_FOR_TAILS = 50
Line = dict[str, Any]


def read_results(folder: Path) -> dict[str, list[Line]]:
    """All lines, by `machine/name`."""
    return {
        f"{file.parent.name}/{file.stem}": [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in sorted(folder.glob("*/*.jsonl"))
    }


def compare(lines: list[Line]) -> list[Line]:
    """Add `speedup`: how many times quicker than the first system on the same work, and `min_cosine` to it."""
    first: dict[tuple[Any, ...], Line] = {}
    compared = []
    for line in lines:
        base = first.setdefault(_work(line), line)
        added = {"speedup": _speedup(line, base)} if base["system"] != line["system"] else {}
        extra = line.get("extra", {})
        compared.append(line | added | {key: extra[key] for key in ("min_cosine",) if key in extra})
    return compared


def _work(line: Line) -> tuple[Any, ...]:
    """What two lines must have in common to be compared: measured in turns, systems may be reached in any way."""
    keys = ("suite", "len", "batch", "concurrency", "note", "model")
    return (*map(line.get, keys), None if "turns" in line.get("extra", {}) else line.get("protocol"))


def _speedup(line: Line, base: Line) -> float:
    """By rates where many texts are what counts, else by the median request."""
    if line["suite"] == "throughput" and "emb_per_s" in line:
        return float(line["emb_per_s"] / base["emb_per_s"])
    return float(base["p50_ms"] / line["p50_ms"])


def table(lines: list[Line]) -> str:
    """A Markdown table of what the lines have and what is worth a column."""
    lines = [_worth_showing(line) for line in lines]
    columns = [key for key in _COLUMNS if any(key in line for line in lines)]
    rows = [[_COLUMNS[key][0] for key in columns], ["---"] * len(columns)]
    rows += [[_COLUMNS[key][1].format(line[key]) if key in line else "" for key in columns] for line in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _worth_showing(line: Line) -> Line:
    """Leave out percentiles of too few samples, and the size of a pass that is just one request."""
    hidden = set()
    if len(line["samples_ms"]) < _LEAST_FOR_TAILS:
        hidden |= {"p90_ms", "p99_ms"}
    if line.get("texts") == line.get("batch", 1):
        hidden.add("texts")
    elif "batch" in line:
        hidden.add("p50_ms")  # of a pass of many requests: its rate says more
    return {key: value for key, value in line.items() if key not in hidden}


def plot(lines: list[Line], title: str, path: Path) -> None:
    """Bars of p50 latency with whiskers to p99, one group for each piece of work."""
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(lines) + 1.2))
    labels = [_label(line) for line in lines]
    p50 = [line["p50_ms"] for line in lines]
    tails = [max(0.0, line["p99_ms"] - line["p50_ms"]) for line in lines]
    colours = ["#1f4e9c" if line["system"].startswith("lazuli") else "#b0b0b0" for line in lines]
    axes.barh(range(len(lines)), p50, xerr=[[0.0] * len(lines), tails], color=colours, ecolor="#606060", capsize=2)
    axes.set_yticks(range(len(lines)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("ms: p50, whisker to p99")
    axes.set_title(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def section(name: str, lines: list[Line], plots: Path, link: str) -> str:
    """Everything about one result file."""
    if lines[0]["level"] == "kernel":
        return "\n\n".join([f"### {name}", _provenance(lines), *kernel_tables(lines)])
    if lines[0]["suite"] == ACCURACY:
        return "\n\n".join([f"### {name}", *accuracy_tables(lines)])
    if lines[0]["level"] == "tokenizer":
        return "\n\n".join([f"### {name}", _provenance(lines), *tokenizer_tables(lines)])
    parts = [f"### {name}", _provenance(lines)]
    for suite, members in _by_suite(compare(lines)).items():
        picture = plots / f"{name.replace('/', '-')}-{suite}.svg"
        plot(members, f"{name}: {suite}", picture)
        parts += [f"**{suite}**", table(members), f"![{suite}]({link}{picture.name})"]
    return "\n\n".join(parts)


def replace_section(file: Path, content: str) -> None:
    """Write between the markers of a file.

    Raises:
        ValueError: If it has no markers.
    """
    text, count = _MARKED.subn(lambda match: f"{match[1]}{content}\n{match[2]}", file.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{file} needs <!-- report --> and <!-- /report --> once, found {count}")
    file.write_text(text, encoding="utf-8")


def main() -> None:
    """Write both files and the pages."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    plt.rcParams["svg.hashsalt"] = "lazuli"  # or else each run would give the same things other names
    results = read_results(PERF / "results")
    plots = PERF / "plots"
    sections = [section(name, lines, plots, "plots/") for name, lines in results.items()]
    replace_section(PERF / "README.md", "\n\n".join(sections))
    highlights = [
        f"**{title.format(_provenance(lines))}**\n\n" + "\n\n".join(_front_page_tables(lines))
        for name, title in _FRONT_PAGE.items()
        if (lines := results.get(name))
    ]
    replace_section(PERF.parent / "README.md", "\n\n".join(highlights))
    for page in pages():
        page.write_text(fill_page(page.read_text(encoding="utf-8"), results, table), encoding="utf-8")


def _front_page_tables(lines: list[Line]) -> list[str]:
    by_suite = _by_suite(line for line in compare(lines) if line.get("len") not in _BETWEEN)
    return [table(by_suite[suite]) for suite in _FRONT_PAGE_SUITES if suite in by_suite]


def _by_suite(lines: Iterable[Line]) -> dict[str, list[Line]]:
    suites: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        suites[line["suite"]].append(line)
    return suites


def _provenance(lines: list[Line]) -> str:
    def distinct(key: str) -> str:
        return ", ".join(dict.fromkeys(str(line[key]) for line in lines if key in line))

    return f"{distinct('model')} on {distinct('machine')}; torch {distinct('torch')}; commit {distinct('commit')}"


def _label(line: Line) -> str:
    if line["suite"] == "parts":
        return f"{line['protocol']} {line['len']}: {line['note']}"
    keys = ("system", "dtype", "protocol")
    work = f"{line['len']} tokens × {line.get('batch', 1)}" if "len" in line else ""
    clients = f", {line['concurrency']} at once" if "concurrency" in line else ""
    return f"{' '.join(str(line[key]) for key in keys if key in line)}: {work}{clients}"


if __name__ == "__main__":
    main()
