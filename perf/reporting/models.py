"""The tables of the pages in `perf/models`: how accurate the checkpoints of a family are, and how quick.

Takes the lines of result files and the text of a page, returns the text with its tables. A page says what it wants:

    <!-- accuracy: all-MiniLM-L6-v2, BAAI/bge-m3 -->    those checkpoints, of the file `accuracy` of any machine
    <!-- figures: h200/engine_minilm -->                that file, or several with commas

Each ends with `<!-- /accuracy -->` or `<!-- /figures -->`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reporting.tables import rows

Line = dict[str, Any]
Results = Mapping[str, Sequence[Line]]
ACCURACY = "accuracy"
NOT_MEASURED = "Not measured yet."
_MARKED = re.compile(r"(<!-- (accuracy|figures): (.*?) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
_SUITES = ("latency", "scoring", "throughput")
_PROTOCOLS = (None, "grpc")


def fill_page(text: str, results: Results, table: Callable[[list[Line]], str]) -> str:
    """A page with its tables.

    Args:
        text: The page.
        results: All lines, by `machine/name`.
        table: Makes a table of lines of timings.

    Raises:
        ValueError: If it wants accuracies of a checkpoint that nobody measured.
    """

    def fill(match: re.Match[str]) -> str:
        names = [name.strip() for name in match[3].split(",")]
        content = accuracy(results, names) if match[2] == ACCURACY else figures(results, names, table)
        return f"{match[1]}{content}\n{match[4]}"

    return _MARKED.sub(fill, text)


def accuracy(results: Results, models: Sequence[str]) -> str:
    """Tables for the named checkpoints, one for vectors and one for scores; where from is said below."""
    lines = [line for name, own in results.items() if name.endswith(f"/{ACCURACY}") for line in own]
    chosen = [line for model in models for line in lines if line["model"] == model]
    missing = set(models) - {line["model"] for line in chosen}
    if missing:
        raise ValueError(f"no accuracy of {', '.join(sorted(missing))} in perf/results; run perf/bench_accuracy.py")
    return "\n\n".join(accuracy_tables(chosen))


def accuracy_tables(lines: Sequence[Line]) -> list[str]:
    """Tables of the lines of a result file about accuracy, and what they were measured with."""
    parts = []
    for titles, keys in (_OF_VECTORS, _OF_SCORES):
        chosen = [line for line in lines if keys[0][0] in line]
        if chosen:
            parts.append(_accuracy_table(chosen, titles, keys))
    return [*parts, _origin(lines)]


_Keys = tuple[tuple[str, str], ...]
# Titles of the two columns of a dtype and of the last; keys and formats, the last of which is the reference's own.
_OF_VECTORS: tuple[tuple[str, str, str], _Keys] = (
    ("least cosine", "mean", "of different texts"),
    (("min_cosine", "{:.7f}"), ("mean_cosine", "{:.7f}"), ("other_cosine", "{:.2f}")),
)
_OF_SCORES: tuple[tuple[str, str], _Keys] = (
    ("largest difference of logits", "their standard deviation"),
    (("max_difference", "{:.1e}"), ("spread", "{:.2f}")),
)


def _accuracy_table(lines: Sequence[Line], titles: Sequence[str], keys: _Keys) -> str:
    """A row for each output of each checkpoint, with columns for each dtype."""
    dtypes = list(dict.fromkeys(line["dtype"] for line in lines))
    outputs: dict[tuple[str, ...], dict[str, Line]] = {}
    for line in lines:
        outputs.setdefault((line["model"], line["note"], line["output"]), {})[line["dtype"]] = line
    head = ["checkpoint", "weights", "output", *(f"{dtype}: {title}" for dtype in dtypes for title in titles[:-1])]
    table = [[*head, titles[-1]]]
    for what, by_dtype in outputs.items():
        cells = [_cell(by_dtype.get(dtype), *key) for dtype in dtypes for key in keys[:-1]]
        table.append([*what, *cells, _cell(next(iter(by_dtype.values())), *keys[-1])])
    return rows(table)


def _cell(line: Line | None, key: str, shown: str) -> str:
    return "" if line is None else shown.format(line[key])


def _origin(lines: Sequence[Line]) -> str:
    keys = ("texts", "len", "reference", "machine", "torch", "commit")
    texts, length, *rest = (", ".join(dict.fromkeys(str(line[key]) for line in lines)) for key in keys)
    return "{} texts of {} tokens against {}; {}; torch {}; commit {}".format(texts, length, *rest)


def figures(results: Results, names: Sequence[str], table: Callable[[list[Line]], str]) -> str:
    """What the named files say of latency and throughput, in one table; over a network, by gRPC."""
    lines, origins = [], []
    for name in names:
        own = [line for line in results.get(name, ()) if _is_wanted(line)]
        lines += own
        origins += [_origin_of_timings(line) for line in own[:1]]
    return f"{table(lines)}\n\n{'. '.join(origins)}" if lines else NOT_MEASURED


def _is_wanted(line: Line) -> bool:
    return line["suite"] in _SUITES and line.get("protocol") in _PROTOCOLS


def _origin_of_timings(line: Line) -> str:
    where = "through the server" if line["level"] == "server" else "engine in process"
    return f"{line['model']}, {where}; {line['machine']}; torch {line['torch']}; commit {line['commit']}"
