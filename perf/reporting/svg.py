"""Figures as SVG: small files for Markdown, and the same within an HTML page, in its colours."""

import io
import re
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from reporting.plots import INK, PAPER

# Names are the same in each run, text stays text, and all is in two colours that a page can replace.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "lazuli",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_DECIMALS = re.compile(r"(\d\.\d\d)\d+")
_OUTER_IDS = re.compile(
    r' id="(?:figure|axes|patch|text|line2d|matplotlib\.axis|xtick|ytick|legend|PolyCollection|LineCollection)_\d+"'
)

_INNER_IDS = re.compile(r'(\bid="|#)([mp][0-9a-f]{10})')


def to_svg(figure: Figure) -> str:
    """The file; closes the figure."""
    with io.StringIO() as out:
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
        plt.close(figure)
        return _DECIMALS.sub(r"\1", out.getvalue())


def inline(svg: str, name: str, title: str) -> str:
    """What stands in a page: ink in the colour of its text, `name` before ids that must be one of a kind."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = _OUTER_IDS.sub("", body).replace(PAPER, "none").replace(INK, "currentColor")
    head, rest = body.split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    assert view is not None
    width = re.search(r'width="([\d.]+)pt"', head)
    assert width is not None
    size = f'style="max-width:{float(width[1]) * 4 / 3:.0f}px"'
    rest = _INNER_IDS.sub(rf"\g<1>{name}-\g<2>", rest)
    return f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {view[0]} {size} role="img" aria-label="{title}">{rest}'
