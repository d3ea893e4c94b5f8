"""The special tokens around and between two texts, and the number of the segment of each token.

Takes a tokenizer, and then ids of two texts; returns the ids that a model reads. Cuts nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from lazuli.errors import ConfigError

Tokens = tuple[list[int], list[int]]


@dataclass(frozen=True, slots=True)
class TokenizedPair:
    """A query and a document as the model will read them.

    Attributes:
        input_ids: Token ids, special tokens included.
        token_type_ids: The number of the segment of each token: 0, or 1 for the second.
        truncated: Whether something of the pair was cut off.
    """

    input_ids: list[int]
    token_type_ids: list[int]
    truncated: bool


@dataclass(frozen=True)
class PairLayout:
    """What a tokenizer puts around a pair; each piece is ids and segment numbers.

    Attributes:
        before: In front of the first text.
        between: Between the two.
        after: Behind the second.
        segments: The segment numbers of the tokens of the two texts.
    """

    before: Tokens
    between: Tokens
    after: Tokens
    segments: tuple[int, int]

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer, *, has_segments: bool = True) -> "PairLayout":
        """Find it out by a pair of texts of some tokens.

        Args:
            tokenizer: The tokenizer.
            has_segments: Whether the model is told the segments apart; else all tokens are of the first.

        Raises:
            ConfigError: If the tokenizer makes no token of any text.
        """
        for text in ("a", "1", ".", *tokenizer.get_vocab()):
            encoding = tokenizer.encode(text, text)
            owners = encoding.sequence_ids
            places = [[place for place, owner in enumerate(owners) if owner == number] for number in (0, 1)]
            if all(places):
                first, second = places
                ids, types = encoding.ids, encoding.type_ids if has_segments else [0] * len(encoding)
                return cls(
                    before=(ids[: first[0]], types[: first[0]]),
                    between=(ids[first[-1] + 1 : second[0]], types[first[-1] + 1 : second[0]]),
                    after=(ids[second[-1] + 1 :], types[second[-1] + 1 :]),
                    segments=(types[first[0]], types[second[0]]),
                )
        raise ConfigError("checkpoint: its tokenizer makes no token of any text")

    @property
    def num_special(self) -> int:
        """Tokens that are no text."""
        return sum(len(ids) for ids, _ in (self.before, self.between, self.after))

    def join(self, first: Sequence[int], second: Sequence[int], *, truncated: bool) -> TokenizedPair:
        """The pair of these texts, which are as short as they must be."""
        ids = [*self.before[0], *first, *self.between[0], *second, *self.after[0]]
        of_first, of_second = (
            [number] * len(text) for number, text in zip(self.segments, (first, second), strict=True)
        )
        segments = [*self.before[1], *of_first, *self.between[1], *of_second, *self.after[1]]
        return TokenizedPair(ids, segments, truncated)
