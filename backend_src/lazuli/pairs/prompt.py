"""Pairs as Qwen3-Reranker reads them: a chat turn that asks whether a document meets a query.

Takes UTF-8 strings and request options, returns ragged ids. Knows nothing of checkpoints.
"""

from collections.abc import Sequence

import tokenizers

from lazuli.errors import ConfigError, InputError, OptionError
from lazuli.options import RequestOptions
from lazuli.pairs.layout import TokenizedPair
from lazuli.scoring.options import RerankOptions
from lazuli.template import Template
from lazuli.text_encoders import TextEncoder
from lazuli.tokenizer import TextTokenizer

# As the model's own card has them; the model was trained with no others.
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
DEFAULT_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# Most tokens of the whole, where nobody says otherwise.
MAX_SEQ_LENGTH = 8192


class PromptTokenizer:
    """A `PairTokenizer` of prompts; only what stands between `BEFORE` and `AFTER` is ever cut."""

    def __init__(
        self,
        frame: tuple[list[int], list[int]],
        tokenizer: tokenizers.Tokenizer,
        encoder: TextEncoder,
        max_seq_length: int,
        threads: int = 1,
        instruction: str = DEFAULT_INSTRUCTION,
    ) -> None:
        """Wrap a tokenizer.

        Args:
            frame: The ids of `BEFORE` and `AFTER`, from `read_frame`.
            tokenizer: Says what special tokens are put around a text.
            encoder: What turns texts into ids.
            max_seq_length: Most tokens of a prompt.
            threads: Threads that share the texts of one call, if they are many.
            instruction: For requests that have none.

        Raises:
            ConfigError: If `max_seq_length` leaves no room for the texts.
        """
        self._before, self._after = frame
        num_frame = sum(map(len, frame))
        if max_seq_length <= num_frame:
            raise ConfigError(
                f"max_seq_length: {max_seq_length} leaves no room beside the {num_frame} tokens of the prompt"
            )
        self._texts = TextTokenizer(tokenizer, Template({}), max_seq_length - num_frame, threads, encoder)
        self._instruction = instruction
        self.max_seq_length = max_seq_length
        self.threads = threads

    def tokenize(self, queries: Sequence[str], documents: Sequence[str], options: RerankOptions) -> list[TokenizedPair]:
        """See `PairTokenizer`."""
        if options.truncate == "start":
            raise OptionError('truncate: "start" would cut the query off; this model takes "end" and "none"')
        instruction = self._instruction if options.instruction is None else options.instruction
        bodies = [
            f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
            for query, document in zip(queries, documents, strict=True)
        ]
        try:
            texts = self._texts.tokenize(bodies, RequestOptions(truncate=options.truncate), name="document")
        except InputError as error:
            num_frame = len(self._before) + len(self._after)
            counted = f"query and instruction count, and the {num_frame} tokens of the prompt are taken off the limit"
            raise InputError(f"{error} ({counted})") from None
        rows = [(*self._before, *text.input_ids, *self._after) for text in texts]
        return [TokenizedPair(list(ids), [0] * len(ids), text.truncated) for ids, text in zip(rows, texts, strict=True)]


def read_frame(tokenizer: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """The ids of `BEFORE` and `AFTER`, whose special tokens are read as such.

    Args:
        tokenizer: As it was loaded: encoders for texts tell it to read none.
    """
    before, after = (tokenizer.encode(text, add_special_tokens=False).ids for text in (BEFORE, AFTER))
    return before, after
