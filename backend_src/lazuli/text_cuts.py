"""Where a long text may be cut so that its parts, read one after the other, have the ids of the whole.

Some tokenizers read each word between spaces by itself: there, a single space between plain letters or digits of two
words may be left out with the text cut in two. Takes a tokenizer's definition and texts. Knows no tokenizer library.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from lazuli.tokenizer_definition import Definition, model_type, steps_of

Item = TypeVar("Item")
# Letters that no normalization joins with a space before or behind them, and no grapheme: Latin, Greek, Cyrillic,
# Hebrew, Arabic, Hangul syllables. Marks, and letters that can be a prefix of what follows, are none of them.
_PLAIN = "0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0386\u0388-\u03ff\u0400-\u0481\u048a-\u052f"
_PLAIN += "\u05d0-\u05ea\u0621-\u063a\u0641-\u064a\uac00-\ud7a3"
_NORMALIZERS = ("Precompiled", "NFKC", "NFC", "Replace")
_BOUNDARY = re.compile(f"[{_PLAIN}] (?=[{_PLAIN}])")


def word_boundary(definition: Definition) -> re.Pattern[str] | None:
    """What marks the places where texts may be cut: a match begins with the last character of the part before.

    Returns:
        None for a tokenizer whose words are not known to be read by themselves.
    """
    if model_type(definition) != "Unigram" or not _splits_at_spaces(steps_of(definition, "pre_tokenizer")):
        return None
    steps = steps_of(definition, "normalizer")
    if any(step["type"] not in _NORMALIZERS for step in steps):
        return None
    if any(step["type"] == "Replace" and not _only_spaces(step) for step in steps):
        return None
    # Added tokens are looked for in the text as it is, before it is cut into words.
    if any(not token["special"] for token in definition.get("added_tokens") or []):
        return None
    return _BOUNDARY


def cut(text: str, size: int, boundary: re.Pattern[str] | None) -> Iterator[str]:
    """The parts of a text, of `size` characters or some more; without spaces to cut at, the whole."""
    start = 0
    while boundary is not None and len(text) - start >= 2 * size:
        found = boundary.search(text, start + size)
        if found is None:
            break
        yield text[start : found.start() + 1]
        start = found.end()
    yield text[start:]


def in_groups(items: Sequence[Item], size: int, length: Callable[[Item], int]) -> Iterator[Sequence[Item]]:
    """The items in their order, put together until those of a group have `size` characters or more."""
    start = chars = 0
    for place, item in enumerate(items, start=1):
        chars += length(item)
        if chars >= size:
            yield items[start:place]
            start, chars = place, 0
    if start < len(items):
        yield items[start:]


def _splits_at_spaces(steps: Sequence[Definition]) -> bool:
    kinds = [part["type"] for part in steps]
    if kinds not in (["WhitespaceSplit", "Metaspace"], ["Metaspace"]):
        return False
    metaspace = steps[-1]  # each part is to begin as the word that it begins with would in the whole
    prepends = metaspace.get("prepend_scheme", "always" if metaspace.get("add_prefix_space") else "never")
    return prepends == "always" and metaspace.get("split", True) is not False


def _only_spaces(replace: Definition) -> bool:
    """Whether it makes one space of several, or takes away what is no single space: such as ` {2,}`."""
    pattern = replace.get("pattern", {})
    return pattern.get("Regex") in (" {2,}", r"\s{2,}", r"[\n\r\t]") and replace.get("content") in (" ", "")
