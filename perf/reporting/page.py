"""The report as one HTML page that needs nothing else: no script, no request, plots inside.

Takes the Markdown of the results and the plots by name; returns the page, for a phone, for the dark and for paper too.
"""

import html
import re
from collections.abc import Mapping

from markdown_it import MarkdownIt

from reporting.svg import inline

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --dim: #59636e; --line: #d1d9e0; --wash: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --dim: #9198a1; --line: #3d444d; --wash: #151b23; }
}
body { margin: 0 auto; padding: 1rem; max-width: 60rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
a { color: #3b7dd8; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.35rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin-top: 2rem; }
p { max-width: 46rem; }
.table { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .2rem .5rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { font-weight: 600; background: var(--wash); }
td:first-child { min-width: 6rem; }
.r { text-align: right; }
pre { padding: .5rem; background: var(--wash); overflow-x: auto; font-size: .75rem; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--dim); }
.plot { overflow-x: auto; margin: 1rem 0; }
svg { display: block; width: 100%; min-width: 32rem; height: auto; color: var(--ink); }
@media print { details::details-content { content-visibility: visible; height: auto; } }
"""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
_HEADING = re.compile(r"<h([34])>(.*?)</h\1>")
_PICTURE = re.compile(r'<p><img src="[^"]*?([^/"]+)\.svg" alt="([^"]*)" ?/?></p>')


def page(title: str, markdown: str, plots: Mapping[str, str]) -> str:
    """The page.

    Args:
        title: Its title.
        markdown: Headings of levels 3 and 4, tables, pictures of `plots`.
        plots: SVG files by name.
    """
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    body = _HEADING.sub(_heading, body)
    body = _PICTURE.sub(lambda match: f'<div class="plot">{inline(plots[match[1]], match[1], match[2])}</div>', body)
    body = body.replace(' style="text-align:right"', " class=r")
    body = body.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    return _PAGE.format(title=html.escape(title), style=_STYLE, body=body)


def _heading(match: re.Match[str]) -> str:
    """One level up, since the page has no other, and with the name by which the contents link to it."""
    from reporting.sections import anchor

    return f'<h{int(match[1]) - 1} id="{anchor(html.unescape(match[2]))}">{match[2]}</h{int(match[1]) - 1}>'
