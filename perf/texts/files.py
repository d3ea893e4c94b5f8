"""Real texts out of files: one a line, or the field `text` of each line of JSON.

Takes paths; returns strings, and of those the ones that a model can take. Knows no protocol.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers

_TESTS = Path(__file__).parents[2] / "tests" / "data"
# Of many languages and lengths, and short ones that could be queries.
PASSAGES, QUERIES = _TESTS / "sentences.jsonl", _TESTS / "demo_lines.txt"


def read_texts(files: Iterable[Path | str]) -> list[str]:
    """All texts, in order; blank lines are left out.

    Raises:
        ValueError: If a line of a `.jsonl` has no text, or there is no text at all.
    """
    texts = [text for file in files for text in _read_file(Path(file))]
    if not texts:
        raise ValueError("the files hold no text")
    return texts


def _read_file(file: Path) -> list[str]:
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    if file.suffix != ".jsonl":
        return [line for line in lines if line]
    return [_text_of(line, f"{file}:{number}") for number, line in enumerate(lines, 1) if line]


def _text_of(line: str, place: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not isinstance(text, str) or not text:
        raise ValueError(f'{place}: not a JSON object with a "text"')
    return text


@dataclass(frozen=True)
class Fitting:
    """Texts that a model takes whole.

    Attributes:
        texts: The texts.
        tokens: Tokens of each, special tokens included.
        left_out: How many were too long.
    """

    texts: list[str]
    tokens: list[int]
    left_out: int

    @property
    def label(self) -> int | str:
        """The range of their lengths, as a result file has it."""
        low, high = min(self.tokens), max(self.tokens)
        return low if low == high else f"{low}-{high}"


def choose_fitting(texts: Sequence[str], tokenizer: tokenizers.Tokenizer, most_tokens: int) -> Fitting:
    """The texts of at most `most_tokens`.

    Raises:
        ValueError: If there is none.
    """
    # Of its own, which neither pads nor cuts.
    counter = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    counter.no_padding()
    counter.no_truncation()
    counted = [(text, len(encoding.ids)) for text, encoding in zip(texts, counter.encode_batch(texts), strict=True)]
    fitting = [(text, tokens) for text, tokens in counted if tokens <= most_tokens]
    if not fitting:
        raise ValueError(f"none of {len(texts)} texts has at most {most_tokens} tokens")
    return Fitting([text for text, _ in fitting], [tokens for _, tokens in fitting], len(counted) - len(fitting))
