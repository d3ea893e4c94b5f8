"""What a request carries: texts with their ids and how many tokens they are, made as they are needed.

Takes the words of a tokenizer, or real texts with their lengths; returns `Rows`. A `RowSpec` goes to another process
and opens a source of its own there for each seed. Knows no protocol.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tokenizers

from texts.lengths import Lengths
from texts.source import TextSource, single_token_words

Ids = np.ndarray


@dataclass(frozen=True)
class Rows:
    """The rows of one request.

    Attributes:
        texts: The texts.
        tokens: Tokens of all of them, special tokens included.
        ids: Their ids, if those are to be sent in place of the texts.
    """

    texts: list[str]
    tokens: int
    ids: list[Ids] | None = None


@dataclass(frozen=True)
class RealText:
    """A text of a file and its number of tokens."""

    text: str
    tokens: int


@dataclass(frozen=True)
class RowSpec:
    """How rows are made.

    Attributes:
        words: One token each, as `TextSource` needs them.
        num_special: Special tokens of a text.
        tokenizer_file: Makes the ids, if ids are to be sent.
        real: Texts to draw from where lengths are a range; without any, ranges are made of words too.
    """

    words: tuple[str, ...]
    num_special: int
    tokenizer_file: str | None = None
    real: tuple[RealText, ...] = ()

    def open(self, seed: int) -> "RowSource":
        """An endless source of its own."""
        return RowSource(self, seed)


class RowSource:
    """Draws rows; each text is another one, as far as there are others."""

    def __init__(self, spec: RowSpec, seed: int) -> None:
        """Wrap a spec."""
        self._spec = spec
        self._words = TextSource(spec.words, spec.num_special, seed)
        self._rng = np.random.default_rng([seed, 1])
        self._ids = None if spec.tokenizer_file is None else _word_ids(spec.tokenizer_file, spec.words)

    def rows(self, count: int, lengths: Lengths) -> Rows:
        """`count` rows.

        Raises:
            ValueError: If the lengths leave no room for a word, or no real text has such a length.
        """
        if self._spec.real and lengths.low != lengths.high:
            drawn = self._draw_real(count, lengths)
            return self._with_ids([text.text for text in drawn], sum(text.tokens for text in drawn))
        if lengths.low == lengths.high:
            return self._of_words([self._words.draw(count, lengths.low)], count * lengths.low)
        numbers = lengths.draw(self._rng, count)
        return self._of_words([self._words.draw(1, number) for number in numbers], sum(numbers))

    def words(self, count: int, length: int) -> list[str]:
        """`count` texts of words, of one length."""
        return self._words.texts(count, length)

    def _draw_real(self, count: int, lengths: Lengths) -> list[RealText]:
        fitting = _fitting(self._spec.real, lengths)
        if not fitting:
            raise ValueError(f"no text of the file has {lengths} tokens")
        return [fitting[place] for place in self._rng.integers(len(fitting), size=count)]

    def _of_words(self, drawn: list[np.ndarray], tokens: int) -> Rows:
        """Their ids are looked up: to tokenise them would keep the interpreter from a system of the same process."""
        texts = [text for places in drawn for text in self._words.join(places)]
        if self._ids is None:
            return Rows(texts, tokens)
        return Rows(texts, tokens, [self._ids.ids(row) for places in drawn for row in places])

    def _with_ids(self, texts: list[str], tokens: int) -> Rows:
        if self._spec.tokenizer_file is None:
            return Rows(texts, tokens)
        encodings = load_tokenizer(self._spec.tokenizer_file).encode_batch(texts)
        return Rows(texts, tokens, [np.array(encoding.ids, dtype=np.int32) for encoding in encodings])


@dataclass(frozen=True)
class _WordIds:
    """The ids of words by their places, at the start of a text and later in it, and the special ones around it."""

    first: np.ndarray
    later: np.ndarray
    before: np.ndarray
    after: np.ndarray

    def ids(self, places: np.ndarray) -> Ids:
        """Those of a text of such words."""
        return np.concatenate([self.before, self.first[places[:1]], self.later[places[1:]], self.after])


@functools.lru_cache(maxsize=8)
def _word_ids(file: str, words: tuple[str, ...]) -> _WordIds:
    tokenizer = load_tokenizer(file)
    encodings = tokenizer.encode_batch([f"{word} {word}" for word in words], add_special_tokens=False)
    pairs = np.array([encoding.ids for encoding in encodings], dtype=np.int32)
    framed = np.array(tokenizer.encode(f"{words[0]} {words[0]}").ids, dtype=np.int32)
    start = next(place for place in range(len(framed)) if (framed[place : place + 2] == pairs[0]).all())
    return _WordIds(pairs[:, 0], pairs[:, 1], framed[:start], framed[start + 2 :])


def row_spec(tokenizer_file: str, real: Sequence[str] = (), *, with_ids: bool = False) -> RowSpec:
    """The rows of a tokenizer; a real text that it makes nothing of is left out."""
    tokenizer = load_tokenizer(tokenizer_file)
    words, num_special = single_token_words(tokenizer)
    counts = [len(encoding.ids) for encoding in tokenizer.encode_batch(list(real))]
    texts = [RealText(text, count) for text, count in zip(real, counts, strict=True) if count > num_special]
    return RowSpec(tuple(words), num_special, tokenizer_file if with_ids else None, tuple(texts))


@functools.cache
def load_tokenizer(file: str) -> tokenizers.Tokenizer:
    """A tokenizer that neither pads nor cuts."""
    tokenizer = tokenizers.Tokenizer.from_file(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@functools.lru_cache(maxsize=8)
def _fitting(texts: tuple[RealText, ...], lengths: Lengths) -> list[RealText]:
    return [text for text in texts if lengths.low <= text.tokens <= lengths.high]
