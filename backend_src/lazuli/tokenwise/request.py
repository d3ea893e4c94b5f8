"""Requests whose batches are run by another program than that of vectors.

They take rows of token ids and are answered as `lazuli.request` has it.
"""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Any

import numpy as np

from lazuli.errors import InputError
from lazuli.request import AnswerForm, Part, Request, Sender, StreamRequest, UnaryRequest, count_tokens
from lazuli.tokenwise.form import TokenForm, Widths, join

TOKENS, PAIRS = "tokens", "pairs"


class TokenRequest(Request):
    """Answered in one piece; how large its tensors are is known at the end only."""

    program = TOKENS

    def __init__(self, rows: SequenceOf[np.ndarray], form: TokenForm, sender: Sender) -> None:
        """See `Request`.

        Raises:
            InputError: If the answer would be too large.
        """
        form.check(rows, in_parts=False)
        super().__init__(rows, form, sender)
        self._parts: list[tuple[np.ndarray, Mapping[str, np.ndarray]]] = []
        self._widths = Widths(form, len(rows))

    def _answer(self, rows: np.ndarray, outputs: Mapping[str, np.ndarray]) -> None:
        try:
            self._widths.add(outputs)
        except InputError as error:  # the rows that still wait need not be computed
            self._done = True
            self._parts.clear()
            self._sender.send_error(error)
            return
        self._parts.append((rows, outputs))
        if self._done:
            whole = join(self._parts, len(self.sequences))
            index = np.arange(len(self.sequences), dtype=np.int32)
            self._sender.send(Part(index, count_tokens(self.sequences), whole), final=True)


class TokenStreamRequest(StreamRequest):
    """Answered in parts, each padded for itself."""

    program = TOKENS

    def __init__(self, rows: SequenceOf[np.ndarray], form: TokenForm, sender: Sender) -> None:
        """See `Request`.

        Raises:
            InputError: If a row alone would be too large for a part.
        """
        form.check(rows, in_parts=True)
        super().__init__(rows, form, sender)
        self._token_form = form

    def deliver(self, rows: np.ndarray, values: Any) -> None:
        """See `Request`; what would be too large becomes several parts."""
        for places in self._token_form.portion(values):
            super().deliver(rows[places], values[places])


class _Pairs(Request):
    """Pairs of texts, each row a query and behind it a document."""

    program = PAIRS

    def __init__(
        self, rows: SequenceOf[np.ndarray], spans: SequenceOf[np.ndarray], form: AnswerForm, sender: Sender
    ) -> None:
        """See `Request`.

        Args:
            rows: N arrays of token ids.
            spans: N arrays [2]: tokens of the query, tokens of the document.
            form: What the answer holds.
            sender: Where it goes.
        """
        super().__init__(rows, form, sender)
        self.sequences = tuple(
            replace(sequence, spans=lengths) for sequence, lengths in zip(self.sequences, spans, strict=True)
        )


class PairRequest(_Pairs, UnaryRequest):
    """Answered in one piece."""


class PairStreamRequest(_Pairs, StreamRequest):
    """Answered in parts."""
