"""Links of the documents: each leads to a file, and to a heading of it."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)")


def _documents():
    shown = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    done = subprocess.run(shown, capture_output=True, text=True, check=False)
    names = done.stdout.splitlines() or [str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*.md")]
    return [name for name in names if (ROOT / name).is_file()]


def _anchors(document):
    """As GitHub makes them."""
    titles = re.findall(r"^#+ +(.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_there_are_documents():
    assert "README.md" in _documents()


@pytest.mark.parametrize("name", _documents())
def test_links(name):
    document = ROOT / name
    broken = []
    for path, anchor in LINK.findall(document.read_text(encoding="utf-8")):
        target = (document.parent / path) if path else document
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert broken == []
