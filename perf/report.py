"""Turns `perf/results/<machine>/*.jsonl` into what is read: README.md, perf/README.md, perf/models, perf/report.html.

    make report

No figure is typed by hand: the parts of both files between `<!-- report -->` and `<!-- /report -->` are its, those of
the pages of model families that `reporting/models.py` tells, and the whole of the HTML page.
"""

import argparse
import re
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from reporting.model_pages import pages
from reporting.models import fill_page
from reporting.page import page
from reporting.results import Line, by_suite, compare, provenance, read_results
from reporting.sections import report
from reporting.svg import STYLE, to_svg
from reporting.tables import table

PERF = Path(__file__).parent
_MARKED = re.compile(r"(<!-- report -->\n).*?(<!-- /report -->)", re.DOTALL)
_SUITES_BESIDE_OTHERS = ("latency", "scoring", "bulk", "concurrency")
# What the front page shows: titles, and the files below them.
_FRONT_PAGE = (
    ("On two CPU cores, one text at a time, turn and turn about: {}", ["cpu-2core/side_by_side_latency"]),
    ("On two CPU cores, many real texts of mixed lengths, turn and turn about: {}", ["cpu-2core/side_by_side_bulk"]),
    *(
        (
            f"On the GPU, Lazuli's server and {other}'s, turn and turn about, random weights of the shape: {{}}",
            [f"h200/{prefix}_{suite}" for suite in _SUITES_BESIDE_OTHERS],
        )
        for other, prefix in (("vLLM", "vllm_bge"), ("vLLM", "vllm_qwen3"), ("infinity", "infinity_bge"))
    ),
    *(
        ("On the GPU, engine in process, random weights of the shape: {}", [f"h200/engine_{model}"])
        for model in ("bge_m3", "qwen3")
    ),
)
_FRONT_PAGE_SUITES = ("latency", "scoring", "throughput", "concurrency")
# Lengths of single texts that stand in perf/README.md alone.
_BETWEEN = (8, 32, 64, 256)


class Plots:
    """Files of plots, as long as they are the report's."""

    def __init__(self, folder: Path) -> None:
        """Put them into this folder, whatever was there."""
        self.files: dict[str, str] = {}
        self._folder = folder

    def keep(self, name: str, figure: Figure) -> str:
        """Take one; returns its picture in Markdown."""
        self.files[name] = to_svg(figure)
        return f"![{name.rsplit('-', 1)[1]}]({self._folder.name}/{name}.svg)"

    def write(self) -> None:
        """Write all, and remove what is no longer made."""
        self._folder.mkdir(exist_ok=True)
        for name, content in self.files.items():
            (self._folder / f"{name}.svg").write_text(content, encoding="utf-8")
        for file in self._folder.glob("*.svg"):
            if file.stem not in self.files:
                file.unlink()


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
    """Write all of them."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    matplotlib.rcParams.update(STYLE)
    results = read_results(PERF / "results")
    plots = Plots(PERF / "plots")
    content = report(results, plots.keep)
    plots.write()
    replace_section(PERF / "README.md", content)
    (PERF / "report.html").write_text(page("Lazuli, measured", content, plots.files), encoding="utf-8")
    highlights = [
        f"**{title.format(provenance(found[0]))}**\n\n" + "\n\n".join(map(_front_page_tables, found))
        for title, names in _FRONT_PAGE
        if (found := [results[name] for name in names if name in results])
    ]
    replace_section(PERF.parent / "README.md", "\n\n".join(highlights))
    for each in pages():
        each.write_text(fill_page(each.read_text(encoding="utf-8"), results, table), encoding="utf-8")


def _front_page_tables(lines: list[Line]) -> str:
    suites = by_suite(line for line in compare(lines) if line.get("len") not in _BETWEEN)
    return "\n\n".join(table(suites[suite]) for suite in _FRONT_PAGE_SUITES if suite in suites)


if __name__ == "__main__":
    main()
