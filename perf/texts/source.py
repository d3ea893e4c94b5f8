"""An endless source of texts of an exact number of tokens, each text another one.

Takes a tokenizer or its words; returns strings. Cheap enough to run beside the measured requests. Knows no protocol.
"""

from collections.abc import Sequence

import numpy as np
import tokenizers

# A few thousand words make up nearly all of natural text, and the tokenizer's cache of words sees as much.
_MOST_WORDS = 20_000


class TextSource:
    """Draws words as often as natural text repeats them (Zipf)."""

    def __init__(self, words: Sequence[str], num_special: int, seed: int) -> None:
        """Wrap words that are one token each, alone and in a row, and the number of special tokens of a text."""
        self._words = np.array(words, dtype=object)
        weights = 1 / (np.arange(len(words)) + 10)
        self._cumulative = np.cumsum(weights / weights.sum())
        self._num_special = num_special
        self._rng = np.random.default_rng(seed)

    def texts(self, count: int, length: int) -> list[str]:
        """`count` texts of `length` tokens each, special tokens included.

        Raises:
            ValueError: If `length` leaves no room for a word.
        """
        return self.join(self.draw(count, length))

    def draw(self, count: int, length: int) -> np.ndarray:
        """The places of the words of such texts, [count, length less the special tokens]."""
        if length <= self._num_special:
            raise ValueError(f"{length} tokens leave no room beside {self._num_special} special ones")
        drawn = self._rng.random((count, length - self._num_special))
        return np.minimum(np.searchsorted(self._cumulative, drawn), len(self._words) - 1)

    def join(self, places: np.ndarray) -> list[str]:
        """The texts of drawn words."""
        return [" ".join(row) for row in self._words[places]]


def single_token_words(tokenizer: tokenizers.Tokenizer) -> tuple[list[str], int]:
    """The words of a tokenizer that are one token each, and its number of special tokens.

    Returns:
        At most 20,000 words of lower-case ASCII letters, in a seeded random order, and the number.

    Raises:
        ValueError: If there are fewer than 100.
    """
    # ▁ and Ġ are how Unigram and byte-level BPE write the space before a word.
    vocabulary = {token.lstrip("▁Ġ") for token in tokenizer.get_vocab()}
    candidates = sorted(word for word in vocabulary if word.isascii() and word.isalpha() and word.islower())
    rng = np.random.default_rng(0)
    candidates = [candidates[place] for place in rng.permutation(len(candidates))[: 4 * _MOST_WORDS]]
    encodings = tokenizer.encode_batch([f"{word} {word}" for word in candidates], add_special_tokens=False)
    words = [word for word, encoding in zip(candidates, encodings, strict=True) if len(encoding.ids) == 2]
    if len(words) < 100:
        raise ValueError(f"only {len(words)} words of this tokenizer are one token each")
    return words[:_MOST_WORDS], tokenizer.num_special_tokens_to_add(False)
