"""Requests and their texts, by how they ended.

Takes outcomes, returns samples. Used for engines and tokenizers alike; the label of the model tells them apart.
"""

from collections import Counter

from lazuli.metrics.recorder import all_outcomes
from lazuli.metrics.samples import Sample, counter

_REQUESTS = counter("lazuli_requests_total", "Requests that a model answered, by outcome: ok or the kind of error.")
_TEXTS = counter("lazuli_texts_total", "Texts (or pairs, or chunks: rows) of those requests.")
_TOKENS = counter("lazuli_tokens_total", "Tokens of those texts, as they came to an engine.")


class RequestCounts:
    """Counts by outcome."""

    def __init__(self, *, with_tokens: bool) -> None:
        """Count nothing yet.

        Args:
            with_tokens: Whether tokens are known.
        """
        self._with_tokens = with_tokens
        outcomes = dict.fromkeys(all_outcomes(), 0)
        self._requests, self._rows, self._tokens = Counter(outcomes), Counter(outcomes), Counter(outcomes)

    def add(self, outcome: str, rows: int, tokens: int = 0) -> None:
        """Count one request."""
        self._requests[outcome] += 1
        self._rows[outcome] += rows
        self._tokens[outcome] += tokens

    def samples(self) -> list[Sample]:
        """All counters."""
        counted = [(_REQUESTS, self._requests), (_TEXTS, self._rows)]
        if self._with_tokens:
            counted.append((_TOKENS, self._tokens))
        return [family.sample(n, outcome=outcome) for family, counts in counted for outcome, n in counts.items()]
