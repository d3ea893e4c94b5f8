"""Pairs for models that read each text by itself: the tokens of the query, and behind them those of the document.

Takes UTF-8 strings and request options, returns ragged ids; segment 0 is the query, 1 the document. Knows nothing of
checkpoints.
"""

from collections.abc import Sequence

from lazuli.options import RequestOptions
from lazuli.pairs.layout import TokenizedPair
from lazuli.scoring.options import RerankOptions
from lazuli.tokenizer import TextTokenizer


class TextPairTokenizer:
    """A `PairTokenizer` whose texts have their special tokens and prompts each for itself."""

    def __init__(self, texts: TextTokenizer, instruction: str | None = None) -> None:
        """Wrap the tokenizer of single texts.

        Args:
            texts: Its limit is that of each text.
            instruction: For requests that have none; None for the prompt that the model has for queries.
        """
        self._texts = texts
        self._instruction = instruction
        self.max_seq_length = texts.max_seq_length
        self.threads = texts.threads

    def tokenize(self, queries: Sequence[str], documents: Sequence[str], options: RerankOptions) -> list[TokenizedPair]:
        """See `PairTokenizer`."""
        instruction = self._instruction if options.instruction is None else options.instruction
        of_query = RequestOptions(truncate=options.truncate, instruction=instruction)
        if instruction is None:
            of_query = RequestOptions(truncate=options.truncate, input_type="query")
        # One query for all documents, as is usual, is read once; of several, an error must name the row.
        is_one = len(set(queries)) == 1
        read = self._texts.tokenize
        firsts = read(queries[:1] if is_one else queries, of_query, name="query")
        seconds = read(documents, RequestOptions(truncate=options.truncate, input_type="document"), name="document")
        return [
            TokenizedPair(
                [*first.input_ids, *second.input_ids],
                [0] * len(first.input_ids) + [1] * len(second.input_ids),
                first.truncated or second.truncated,
            )
            for first, second in zip(firsts * len(documents) if is_one else firsts, seconds, strict=True)
        ]
