"""The pages in `perf/models`: their commands, programs and answers.

Takes the text of a page, returns its blocks, or the text with other answers. Runs nothing.
"""

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "models"
COMMAND, PYTHON, ANSWER = "command", "python", "answer"
_BLOCK = re.compile(
    r"^    (?P<command>(?:curl |\.venv/bin/lazuli )[^\n]*)$"
    r"|^```python\n(?P<python>.*?)^```$|^```text\n(?P<answer>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_CURL = re.compile(r"/v2/models/(?P<model>[^/ ]+)/generate\b.*?-d '(?P<body>.*)'$")
# Longer lists are shown by their first numbers.
_SHOWN = 3
_OF_TRITON = ("model_", "sequence_")


@dataclass(frozen=True)
class Block:
    """One of a page.

    Attributes:
        kind: `command`, `python`, or `answer`: what the command or program before it prints.
        text: What it holds.
        place: Where that is in the page.
    """

    kind: str
    text: str
    place: slice


@dataclass(frozen=True)
class Addition:
    """A `lazuli model add` of a page.

    Attributes:
        name: Of the model.
        checkpoint: As published.
        task: If it is said.
        arguments: All behind `lazuli`.
    """

    name: str
    checkpoint: str
    task: str | None
    arguments: tuple[str, ...]


def pages() -> list[Path]:
    """One for each family, without the index."""
    return sorted(file for file in FOLDER.glob("*.md") if file.name != "README.md")


def read_blocks(text: str) -> list[Block]:
    """All blocks of a page, in order."""
    found = []
    for match in _BLOCK.finditer(text):
        kind = next(name for name, value in match.groupdict().items() if value is not None)
        found.append(Block(kind, match[kind], slice(*match.span(kind))))
    return found


def lazuli_arguments(command: str) -> tuple[str, ...]:
    """What stands behind `lazuli` in a command; empty if it is another one."""
    program, *arguments = shlex.split(command)
    return tuple(arguments) if program.endswith("/lazuli") else ()


def read_additions(blocks: Sequence[Block]) -> list[Addition]:
    """The models that a page adds."""
    additions = []
    for block in blocks:
        arguments = lazuli_arguments(block.text) if block.kind == COMMAND else ()
        if arguments[:2] == ("model", "add"):
            options = dict(itertools.pairwise(arguments))
            additions.append(Addition(arguments[2], options["--checkpoint"], options.get("--task"), arguments))
    return additions


def read_requests(blocks: Sequence[Block]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Model and JSON body of each `curl` of a page.

    Raises:
        ValueError: If one is none for `generate`.
    """
    for block in blocks:
        if block.kind == COMMAND and block.text.startswith("curl "):
            match = _CURL.search(block.text)
            if match is None:
                raise ValueError(f"not a request to /v2/models/MODEL/generate: {block.text}")
            yield match["model"], json.loads(match["body"])


def with_answers(text: str, answers: Sequence[str | None]) -> str:
    """A page with what was really answered.

    Args:
        text: The page.
        answers: For each block what it printed, None if it was not run. A block without an answer behind it shows
            none.
    """
    blocks = read_blocks(text)
    parts, end = [], 0
    for block, printed in zip(blocks[1:], answers, strict=False):
        if block.kind == ANSWER and printed is not None:
            parts += [text[end : block.place.start], printed.rstrip("\n") + "\n"]
            end = block.place.stop
    return "".join([*parts, text[end:]])


def shorten_answer(printed: str) -> str:
    """The JSON of an answer without what Triton adds, long lists cut, numbers rounded; other text as it is."""
    try:
        answer = json.loads(printed)
    except ValueError:
        return printed
    lines = [f"{name}: {_show(value)}" for name, value in answer.items() if not name.startswith(_OF_TRITON)]
    return "\n".join(lines)


def _show(value: Any) -> str:
    if isinstance(value, list) and len(value) > 2 * _SHOWN:
        return f"[{', '.join(map(_show, value[:_SHOWN]))}, ...], {len(value)} values"
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return f"{value:.4f}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
