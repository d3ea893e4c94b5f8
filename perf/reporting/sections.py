"""The results in the order in which a reader wants them, as Markdown.

Takes all lines by `machine/name` and what keeps a plot; returns text: other systems first, then the server, the engine,
and what they are made of. What is long is folded.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from reporting import plots
from reporting.kernels import kernel_tables
from reporting.models import ACCURACY, accuracy_tables
from reporting.parts import PARTS, parts_tables
from reporting.results import Line, by_suite, commands, compare, provenance
from reporting.soak import SOAK, soak_parts, soak_plot
from reporting.tables import common, table
from reporting.tokenizers import tokenizer_tables

Keep = Callable[[str, Figure], str]

SIDE_BY_SIDE, SERVER, ENGINE, GRAPHS = (
    "Side by side with other systems",
    "The server",
    "The engine",
    "Graphs and overlap",
)
KERNELS, TOKENIZERS, CLOSENESS, EARLIER = "Attention kernels", "Tokenizers", "Accuracy", "Earlier runs"
_ABOUT = {
    SIDE_BY_SIDE: "Every system of a file ran in one run, turn and turn about, on the same texts.",
    SERVER: "Requests over a network to a live server, tokenising included.",
    ENGINE: "In process: from packed ids to vectors in host memory. Shapes have random weights.",
    GRAPHS: "CUDA graphs on a mixed load, and whether the host's work overlaps the device's.",
    KERNELS: "One call inside a CUDA graph; in parentheses what its plan takes on the host, if it has one.",
    TOKENIZERS: "Libraries that give the same ids as the reference are marked by a 0; the quickest of these is bold.",
    CLOSENESS: "How near to `transformers` in float32.",
    EARLIER: "At commits before those above, for comparison.",
}
_OF_A_COMMIT = re.compile(r"_[0-9a-f]{7}$")
_GRAPH_SUITES = {"waste", "capture", "replay", "inflection", "overlap-documents", "overlap-queries"}
# Longer tables are folded.
_LONG = 14


def group_of(name: str, lines: Sequence[Line]) -> str:
    """Where a result file belongs."""
    level, suites = lines[0]["level"], {line["suite"] for line in lines}
    if _OF_A_COMMIT.search(name):
        return EARLIER
    if ACCURACY in suites:
        return CLOSENESS
    if level in ("kernel", "tokenizer"):
        return KERNELS if level == "kernel" else TOKENIZERS
    if len({line["system"].split()[0] for line in lines}) > 1:
        return SIDE_BY_SIDE
    if "server" in {line["level"] for line in lines}:
        return SERVER
    return GRAPHS if suites & _GRAPH_SUITES else ENGINE


def report(results: Mapping[str, Sequence[Line]], keep: Keep) -> str:
    """All of it.

    Args:
        results: Lines by `machine/name`.
        keep: Takes the name of a plot and the plot; returns the Markdown of its picture.
    """
    groups: dict[str, dict[str, Sequence[Line]]] = {group: {} for group in _ABOUT}
    for name, lines in results.items():
        if lines:
            groups[group_of(name, lines)][name] = lines
    groups = {group: members for group, members in groups.items() if members}
    parts = ["\n".join(_contents(groups))]
    for group, members in groups.items():
        parts += [f"### {group}", _ABOUT[group]]
        if group == ENGINE:
            parts += _of_all_models(members, keep)
        parts += [
            each
            for name, lines in members.items()
            for each in section(name, lines, keep, is_bare=group in (ENGINE, EARLIER))
        ]
    return "\n\n".join(parts)


def section(name: str, lines: Sequence[Line], keep: Keep, *, is_bare: bool = False) -> list[str]:
    """One result file; its tables alone if it is to be bare."""
    typed = [f"    {command}" for command in commands(lines)]
    parts = [f"#### {name}"]
    if lines[0]["suite"] == ACCURACY:
        parts += accuracy_tables(lines)
    else:
        parts.append(provenance(lines))
    parts += ["\n".join(typed)] if typed else []
    if lines[0]["level"] == "kernel":
        parts += _folded_by_title(kernel_tables(list(lines)))
    elif lines[0]["level"] == "tokenizer":
        parts += tokenizer_tables(list(lines))
    elif lines[0]["suite"] == SOAK:
        parts += [keep(f"{name.replace('/', '-')}-{SOAK}", soak_plot(lines)), *soak_parts(lines)]
    elif lines[0]["suite"] != ACCURACY:
        for suite, members in by_suite(compare(lines)).items():
            parts += _suite(name, suite, members, None if is_bare else keep)
    return parts


def _suite(name: str, suite: str, lines: Sequence[Line], keep: Keep | None) -> Iterator[str]:
    if suite == PARTS:
        yield from _folded_by_title(parts_tables(lines))
        return
    alike, said = common(lines)
    yield f"**{suite}**" + (f" ({said})" if said else "")
    figure = plots.plot(lines) if keep else None
    if keep and figure:
        yield keep(f"{name.replace('/', '-')}-{suite}", figure)
    shown = table(lines, alike)
    yield _folded(f"{len(lines)} rows", shown) if len(lines) > _LONG else shown


def _of_all_models(members: Mapping[str, Sequence[Line]], keep: Keep) -> Iterator[str]:
    """What the files of one machine say together: a line for each model."""
    machines: dict[str, list[Line]] = {}
    for name, lines in members.items():
        machines.setdefault(name.split("/")[0], []).extend(lines)
    for machine, lines in machines.items():
        suites = by_suite(lines)
        for suite, draw, text in (
            ("latency", plots.percentiles, "One text at a time, by its length"),
            (
                "captures",
                plots.warm_up,
                "One text of 128 tokens after the other while graphs of other sizes are captured",
            ),
        ):
            figure = draw(suites[suite], "model") if suite in suites else None
            if figure:
                yield f"{text}, {machine}:"
                yield keep(f"{machine}-engine-{suite}", figure)


def _contents(groups: Mapping[str, Mapping[str, Sequence[Line]]]) -> Iterator[str]:
    for group, members in groups.items():
        links = [f"[{name}](#{anchor(name)})" for name in members]
        yield f"- [{group}](#{anchor(group)}): {', '.join(links)}"


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _folded_by_title(parts: Sequence[str]) -> list[str]:
    """Titles and tables in turns, each table folded beneath its title."""
    return [_folded(title.strip("*"), content) for title, content in zip(parts[::2], parts[1::2], strict=True)]
