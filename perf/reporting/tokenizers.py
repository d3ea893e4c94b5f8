"""Tables of tokenizer libraries: one for each vocabulary, a row for each library.

Takes the lines of a result file whose level is `tokenizer`. Used by `report.py`.
"""

from typing import Any

from reporting.tables import rows

Line = dict[str, Any]


def tokenizer_tables(lines: list[Line]) -> list[str]:
    """A title and a Markdown table for each vocabulary; the quickest of a column is bold among those that are equal."""
    parts = []
    for vocabulary in dict.fromkeys(line["model"] for line in lines):
        systems: dict[str, dict[tuple[int, int, int], Line]] = {}
        for line in lines:
            if line["model"] == vocabulary:
                work = (line["len"], line["batch"], line["concurrency"])
                systems.setdefault(line["system"], {})[work] = line
        compared = next(iter(systems.values()))
        total = next(iter(compared.values()))["extra"]["compared"]
        parts += [f"**{vocabulary}, {total:,.0f} texts compared**", _table(systems)]
    return parts


def _table(systems: dict[str, dict[tuple[int, int, int], Line]]) -> str:
    works = list(next(iter(systems.values())))
    table = [["library", "texts that differ", *map(_title, works), "new words / known words"]]
    for name, by_work in systems.items():
        extra = next(iter(by_work.values()))["extra"]
        cells = [_cell(by_work[work], _best(systems, work)) for work in works]
        table.append([name, f"{extra['differ']:,.0f}", *cells, f"{extra['memory']:.1f}"])
    return rows(table)


def _title(work: tuple[int, int, int]) -> str:
    length, batch, threads = work
    if batch == 1:
        return f"{length} tokens, µs"
    return f"{batch} × {length}, {threads} thread{'s' if threads > 1 else ''}, million ids/s"


def _best(systems: dict[str, dict[tuple[int, int, int], Line]], work: tuple[int, int, int]) -> float:
    return float(min(by_work[work]["p50_ms"] for by_work in systems.values() if by_work[work]["extra"]["differ"] == 0))


def _cell(line: Line, best: float) -> str:
    if line["batch"] == 1:
        shown = f"{1e3 * line['p50_ms']:,.1f}" if line["p50_ms"] < 0.1 else f"{1e3 * line['p50_ms']:,.0f}"
    else:
        shown = f"{line['tokens_per_s'] / 1e6:.2f}"
    return f"**{shown}**" if line["p50_ms"] == best and line["extra"]["differ"] == 0 else shown
