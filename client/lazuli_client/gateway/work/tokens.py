"""The tokenizer of a checkpoint in the gateway: the very one that the server's `tokenizer` model runs.

Takes texts and options, returns token ids. Raises the client's errors. Needs what the extra `engine` brings, but not
torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lazuli.checkpoint import load_checkpoint
from lazuli.config import TokenizerConfig
from lazuli.errors import InputError, LazuliError
from lazuli.options import RequestOptions
from lazuli.reference_encoder import load_reference
from lazuli.tokenizer import TextTokenizer, TokenizedText, pad
from lazuli.tokenizer_definition import read_definition
from lazuli_client.errors import InvalidInputError
from lazuli_client.options import EmbedOptions, names_of
from lazuli_client.request import EmbedRequest, Parameters

__all__ = ["CHECK_TEXTS", "LocalTokenizer", "Piece", "TokenizedText"]

# The long one shows the limit.
CHECK_TEXTS = ("How are you, Ærøskøbing?", "naïve 東京 [SEP] \U0001f600 don't", "a " * 40_000)


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a text, for those who ask what became of it."""

    token_id: int
    text: str
    is_special: bool
    start: int | None
    stop: int | None


class LocalTokenizer:
    """The tokenizer of one model.

    Attributes:
        max_seq_length: Most tokens of a text.
        check_texts: What a server is sent to see whether its tokenizer is this one.
    """

    check_texts = CHECK_TEXTS

    def __init__(self, checkpoint: str, max_seq_length: int | None = None) -> None:
        """Load it.

        Raises:
            ValueError: If the checkpoint cannot be used.
        """
        try:
            self._tokenizer = TextTokenizer.from_config(
                TokenizerConfig(checkpoint=checkpoint, max_seq_length=max_seq_length, threads=1)
            )
            self._reference = load_reference(read_definition(load_checkpoint(checkpoint).path))
        except LazuliError as error:
            raise ValueError(f"tokenizer: {error}") from None
        self._reference.no_truncation()
        self._reference.no_padding()
        self._reference.encode_special_tokens = True
        self.max_seq_length = self._tokenizer.max_seq_length
        cut = EmbedOptions(truncate="end")
        self._check_ids = [self.tokenize([text], cut, range(1))[0].input_ids for text in CHECK_TEXTS]

    def tokenize(self, texts: Sequence[str], options: EmbedOptions, rows: Sequence[int]) -> list[TokenizedText]:
        """Ids of texts.

        Args:
            texts: N texts.
            options: Those about prompts and lengths count.
            rows: What errors call the rows.

        Raises:
            InvalidInputError: If a text is too long, or the prompt is not known.
        """
        try:
            return self._tokenizer.tokenize(texts, _server_options(options))
        except InputError as error:  # an OptionError, too
            raise InvalidInputError(str(error)).renumbered(rows) from None

    def pieces(self, text: str, add_special_tokens: bool) -> list[Piece]:
        """The tokens of a text, uncut and without prompts, with the places of their characters."""
        # As a batch, for then the library lets other threads run meanwhile.
        found = self._reference.encode_batch([text], add_special_tokens=add_special_tokens)[0]
        return [
            Piece(number, token, bool(special), None if special else start, None if special else stop)
            for number, token, special, (start, stop) in zip(
                found.ids, found.tokens, found.special_tokens_mask, found.offsets, strict=True
            )
        ]

    def request(
        self, model: str, texts: list[TokenizedText], parameters: Parameters, rows: Sequence[int], ends_batch: bool
    ) -> EmbedRequest:
        """A request for texts that were tokenised.

        Raises:
            InvalidInputError: If they make too large a table.
        """
        try:
            input_ids, attention_mask = pad(texts)
        except InputError as error:
            raise InvalidInputError(str(error)) from None
        return EmbedRequest(
            model, {"input_ids": input_ids, "attention_mask": attention_mask}, parameters, rows, ends_batch
        )

    def equals(self, row: int, input_ids: np.ndarray) -> bool:
        """Whether a server gives these ids for `check_texts[row]`, cut at the end."""
        return bool(np.array_equal(self._check_ids[row], input_ids))


def _server_options(options: EmbedOptions) -> RequestOptions:
    return RequestOptions(
        prompt_name=options.prompt_name,
        instruction=options.instruction,
        truncate=options.truncate or "none",
        input_type=options.input_type,
        output=names_of(options.output) if options.output else (),
        overlap=options.overlap,
    )
