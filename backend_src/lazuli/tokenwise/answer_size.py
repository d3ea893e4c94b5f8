"""How large the outputs of single tokens make an answer: each row is filled up to the longest.

Takes numbers of tokens, or of what was computed of them, and refuses what is too much. Knows nothing of devices.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from lazuli.errors import InputError
from lazuli.tokenwise.facts import MULTI, SPARSE, TokenFacts

# Bytes of an id with its weight, and of one number of a vector.
SPARSE_BYTES, NUMBER_BYTES = 8, 4


@dataclass(frozen=True)
class AnswerLimit:
    """Most bytes of one answer, or of one part of a stream.

    Attributes:
        max_mb: In MB of 2^20 bytes.
        facts: What a model computes of tokens.
        multi_size: Numbers of a token's vector.
    """

    max_mb: int
    facts: TokenFacts
    multi_size: int = 0

    @property
    def max_bytes(self) -> int:
        """The same in bytes."""
        return self.max_mb << 20

    def check_tokens(
        self, rows: Sequence[np.ndarray], wanted: Collection[str], *, is_query: bool, in_parts: bool
    ) -> None:
        """Refuse a request before anything of it is computed.

        Tokens that a document skips count, too, and what SPLADE finds is known later only.

        Args:
            rows: Ids of N texts.
            wanted: `sparse`, `multi` or both.
            is_query: Whether they are queries, which may be made longer.
            in_parts: Whether the answer comes in parts, which can have single rows.

        Raises:
            InputError: If the answer would be too large.
        """
        lengths = [len(ids) for ids in rows]
        longest = max(lengths)
        num_bytes = self._bytes_of_row(longest, wanted, is_query=is_query) * (1 if in_parts else len(rows))
        if num_bytes > self.max_bytes:
            where = f"row {lengths.index(longest)} of {longest} tokens"
            raise self.error(wanted, 1 if in_parts else len(rows), where, num_bytes)

    def _bytes_of_row(self, num_tokens: int, wanted: Collection[str], *, is_query: bool) -> int:
        sparse, multi = self.facts.sparse, self.facts.multi
        num_bytes = 0
        if SPARSE in wanted and sparse is not None and sparse.file is not None:
            num_bytes += num_tokens * SPARSE_BYTES
        if MULTI in wanted and multi is not None:
            if is_query and multi.expansion is not None:
                num_tokens = max(num_tokens, multi.expansion.length)
            num_bytes += max(1, num_tokens - multi.skip_first) * self.multi_size * NUMBER_BYTES
        return num_bytes

    def check_bytes(self, wanted: Collection[str], num_rows: int, widths: Collection[int], num_bytes: int) -> None:
        """Refuse tensors before they are made.

        Args:
            wanted: As above.
            num_rows: N.
            widths: To how many ids or vectors rows are filled up.
            num_bytes: Of all of it.

        Raises:
            InputError: If that is too much.
        """
        if num_bytes > self.max_bytes:
            raise self.error(wanted, num_rows, f"of {max(widths)} ids or vectors", num_bytes)

    def error(self, wanted: Collection[str], num_rows: int, longest: str, num_bytes: int) -> InputError:
        """What to say of an answer that is too large."""
        size = f"{ceil(num_bytes / (1 << 20))} MB, but an answer may have at most {self.max_mb} MB (max_answer_mb)"
        output = f"output: {','.join(sorted(wanted))}"
        if num_rows == 1:
            return InputError(f"{output}: one row, {longest}, makes {size}; shorten it")
        return InputError(
            f"{output}: {num_rows} rows, each filled up to the longest, {longest}, make {size}; "
            "ask for fewer or more equal texts at a time"
        )
