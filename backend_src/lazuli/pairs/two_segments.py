"""Pairs as cross-encoders read them: two segments, with special tokens around and between them.

Takes UTF-8 strings and request options, returns ragged ids. Knows nothing of checkpoints.
"""

from collections.abc import Sequence

from lazuli.errors import ConfigError, InputError, OptionError
from lazuli.pairs.layout import PairLayout, TokenizedPair
from lazuli.pairs.truncation import Truncation
from lazuli.scoring.options import RerankOptions
from lazuli.text_encoders import TextEncoder
from lazuli.text_reader import TextReader


class SegmentTokenizer(TextReader):
    """A `PairTokenizer` of pairs of segments."""

    def __init__(
        self, layout: PairLayout, truncation: Truncation, encoder: TextEncoder, max_seq_length: int, threads: int = 1
    ) -> None:
        """Wrap an encoder.

        Args:
            layout: What is put around a pair.
            truncation: How much of each text is kept.
            encoder: What turns texts into ids.
            max_seq_length: Most tokens of a pair.
            threads: Threads that share the texts of one call, if they are many.

        Raises:
            ConfigError: If `max_seq_length` leaves no room for both texts.
        """
        super().__init__(encoder, max_seq_length, threads)
        self._layout = layout
        self._truncation = truncation
        self._room = max_seq_length - layout.num_special
        if self._room < 2 or min(truncation(max_seq_length, max_seq_length, self._room)) < 1:
            raise ConfigError(
                f"max_seq_length: {max_seq_length} leaves no room for a query and a document beside "
                f"{layout.num_special} special tokens"
            )

    def tokenize(self, queries: Sequence[str], documents: Sequence[str], options: RerankOptions) -> list[TokenizedPair]:
        """See `PairTokenizer`."""
        if options.instruction is not None:
            raise OptionError("instruction: this model reads none, only the query and the document")
        # A query that stands in many pairs is read once.
        places = {query: place for place, query in enumerate(dict.fromkeys(queries))}
        # Of a text that is much too long, the length is not known: where both are, the odd token may go to the other.
        wholes = (*places, *documents)
        texts = [self.near_end(text, options.truncate) for text in wholes]
        ids = self.read(texts)
        is_whole = [text is whole for text, whole in zip(texts, wholes, strict=True)]
        pairs = [(places[query], len(places) + row) for row, query in enumerate(queries)]
        return [
            self._fit(ids[first], ids[second], options.truncate, row, whole=(is_whole[first], is_whole[second]))
            for row, (first, second) in enumerate(pairs)
        ]

    def _fit(
        self, first: list[int], second: list[int], truncate: str, row: int, *, whole: tuple[bool, bool]
    ) -> TokenizedPair:
        """Put the special tokens around two texts, which are cut before if they must be.

        Args:
            first: Ids of the query.
            second: Ids of the document.
            truncate: Where to cut.
            row: For an error.
            whole: Whether these are all ids of the one and the other, or those of a part.
        """
        sizes = len(first), len(second)
        if not sum(sizes) + self._layout.num_special:
            raise InputError(f"document[{row}]: no token is left of it and its query, so there is nothing to score")
        kept = self._truncation(*sizes, self._room)
        truncated = kept != sizes
        if truncated and truncate == "none":
            raise self._too_long(sizes, kept, row, whole)
        if truncated:
            first, second = (_cut(ids, size, truncate) for ids, size in zip((first, second), kept, strict=True))
        return self._layout.join(first, second, truncated=truncated)

    def _too_long(
        self, sizes: tuple[int, int], kept: tuple[int, int], row: int, whole: tuple[bool, bool]
    ) -> InputError:
        query, document = sizes
        remedy = 'shorten it or pass truncate="end"'
        if kept[1] == document:
            return InputError(
                f"query[{row}]: {'' if whole[0] else 'over '}{query} tokens, but at most {kept[0]} are allowed beside "
                f"its document; {remedy}"
            )
        return InputError(
            f"document[{row}]: {'' if all(whole) else 'over '}{query + document + self._layout.num_special} tokens "
            f"with its query, but at most {self.max_seq_length} are allowed; {remedy}"
        )


def _cut(ids: list[int], size: int, truncate: str) -> list[int]:
    return ids[len(ids) - size :] if truncate == "start" else ids[:size]
