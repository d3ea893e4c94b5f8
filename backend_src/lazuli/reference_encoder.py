"""Hugging Face's tokenizers, which every other library is compared with, and how many threads they have.

Takes the definition of a tokenizer, returns what gives the ids of texts. Knows nothing of other libraries.
"""

import json
import os
import re
from collections.abc import Sequence

import tokenizers

from lazuli.errors import ConfigError
from lazuli.many_texts import ManyTexts
from lazuli.tokenizer_definition import Definition, seal

# From here on a query that comes while many texts are read is to find a core that does something else.
_MANY_CORES = 4
# Which take less time than it takes to wake a thread up.
_FEW_CHARS = 2048
_PARALLELISM = "TOKENIZERS_PARALLELISM"


def use_threads(count: int | None) -> int:
    """Set how many threads the reference's library has in this process: what counts is the call before its first use.

    Args:
        count: Threads; by default one per core, but on many cores some are left to what runs beside.

    Returns:
        The number.
    """
    cores = len(os.sched_getaffinity(0))
    count = count or (cores if cores < _MANY_CORES else cores * 3 // 4)
    # Not "true": then the library would wait for its threads after a fork as well, which the child does not have.
    os.environ.pop(_PARALLELISM, None)
    if count == 1:
        os.environ[_PARALLELISM] = "false"
    os.environ["RAYON_NUM_THREADS"] = str(count)
    return count


def load_reference(definition: Definition) -> tokenizers.Tokenizer:
    """The tokenizer of a definition, such that no text becomes a special token of a Unigram vocabulary.

    Raises:
        ConfigError: If the library cannot read it.
    """
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(seal(definition)))
    except Exception as error:  # the library raises the bare class
        raise ConfigError(f"checkpoint: tokenizer.json cannot be read ({error})") from None


class HuggingFaceEncoder:
    """The reference: reads every `tokenizer.json`. See `text_encoders.TextEncoder`."""

    name = "huggingface"
    chars_for_threads: int | None = _FEW_CHARS
    many: ManyTexts | None = None
    boundary: re.Pattern[str] | None = None

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        """Wrap a tokenizer; its padding, its truncation and its memory of words are turned off."""
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.remember([])

    def remember(self, words: Sequence[str]) -> None:
        """Let the library remember the ids of some of these words, and of none that comes later.

        BPE and Unigram remember words until they have as many as they may, and those for good. Left alone they would
        take the words of the first requests, and tell by the time that a text takes which ones these were.
        """
        if not hasattr(self._tokenizer.model, "_resize_cache"):  # WordPiece has no memory
            return
        self._tokenizer.model._resize_cache(len(words) // 2)  # fewer than there are, so that they fill it
        for start in range(0, len(words), 512):
            self.encode([" " + " ".join(words[start : start + 512])])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""
        if len(texts) > 1 and sum(map(len, texts)) < _FEW_CHARS:
            # The library leaves a single text to the thread that calls, and wakes its own for two.
            return [ids for text in texts for ids in self._encode([text])]
        return self._encode(list(texts))

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
