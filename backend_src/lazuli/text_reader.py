"""Reads texts as token ids: many of them on several threads, and of one that is much too long only a part.

Takes strings, returns ids without special tokens. Knows nothing of templates, and cuts nothing to a limit.

Threads that share the texts of a call make it quicker, but cost more than one thread that reads them all: 1.4 times the
processor's time on two cores, and more the more threads look for work. So they are divided among the calls that come
together, and where each has one, none shares.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lazuli.many_texts import share
from lazuli.text_cuts import in_groups
from lazuli.text_encoders import TextEncoder

# An encoder that keeps the interpreter gives it up after so many characters, for a query that may wait: a millisecond.
_PIECE_CHARS = 16 << 10
# A text of more characters than this for each token that it may have is looked at in part.
_CHARS_PER_TOKEN = 32
_SPARE_TOKENS = 128


class TextReader:
    """An encoder and how its texts are put before it.

    Attributes:
        encoder: What turns texts into ids.
        max_seq_length: Most tokens that are of use.
        threads: Threads that may call the encoder at once: one where it keeps the interpreter.
    """

    def __init__(self, encoder: TextEncoder, max_seq_length: int, threads: int) -> None:
        self.encoder = encoder
        self.max_seq_length = max_seq_length
        self.threads = threads if encoder.chars_for_threads is not None else 1
        self._num_reading = 0
        self._lock = threading.Lock()

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, with nothing around them."""
        few, many = self.encoder.chars_for_threads, self.encoder.many
        if len(texts) == 1 and self.encoder.boundary is None:
            return self.encoder.encode(texts)
        if many is not None and many.pays([len(text) for text in texts]):
            return share(many.encode, many.threads, texts)
        if few is None:
            return [ids for piece in in_groups(texts, _PIECE_CHARS, len) for ids in self.encoder.encode(piece)]
        if sum(map(len, texts)) < few or self.threads == 1:
            return self.encoder.encode(texts)
        with self._own_threads() as threads:
            if threads < 2:
                return [ids for text in texts for ids in self.encoder.encode([text])]
            return share(self.encoder.encode, threads, texts, self.encoder.boundary)

    @contextmanager
    def _own_threads(self) -> Iterator[int]:
        """How many threads this call may use beside those that are under way."""
        with self._lock:
            self._num_reading += 1
            threads = self.threads // self._num_reading
        try:
            yield threads
        finally:
            with self._lock:
                self._num_reading -= 1

    def near_end(self, text: str, truncate: str, limit: int | None = None) -> str:
        """The text, or of one that is much too long enough of the end that is kept: `limit` tokens, if not all of use.

        Megabytes would keep the tokenizer from everybody else for seconds, only to be cut or refused. A token hangs on
        what is near it, so with some tokens to spare the first ones are those of the whole text; not always in a word
        of thousands of equal letters, which Unigram can divide in several ways at the same cost.
        """
        limit = limit or self.max_seq_length
        size = _CHARS_PER_TOKEN * limit
        while size < len(text):
            piece = text[-size:] if truncate == "start" else text[:size]
            if len(self.encoder.encode([piece])[0]) >= limit + _SPARE_TOKENS:
                return piece
            size *= 4
        return text
