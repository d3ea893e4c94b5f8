"""Texts to token ids, with templates and truncation.

Takes UTF-8 strings and request options, returns ragged ids. A text never becomes special tokens: those are added around
it, and stay when it is cut. Knows nothing of Triton or torch.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import tokenizers

from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import TokenizerConfig
from lazuli.errors import ConfigError, InputError
from lazuli.options import RequestOptions
from lazuli.template import Template
from lazuli.text_encoders import HuggingFaceEncoder, TextEncoder, choose_encoder, load_reference
from lazuli.tokenizer_definition import read_definition

# A text of more characters than this for each token that it may have is looked at in part.
_CHARS_PER_TOKEN = 32
_SPARE_TOKENS = 128


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """One text as the model will read it.

    Attributes:
        input_ids: Token ids, special tokens included.
        truncated: Whether something of the text was cut off.
    """

    input_ids: list[int]
    truncated: bool


class TextTokenizer:
    """The tokenizer of one checkpoint."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        template: Template,
        max_seq_length: int,
        threads: int = 1,
        encoder: TextEncoder | None = None,
    ) -> None:
        """Wrap a loaded tokenizer; its own padding and truncation are turned off.

        Args:
            tokenizer: The tokenizer, which says what special tokens are put around a text.
            template: What is put around each text.
            max_seq_length: Most tokens of a text.
            threads: Threads that share the texts of one call, if they are many.
            encoder: What turns texts into ids; None takes the tokenizer for that too.

        Raises:
            ConfigError: If `max_seq_length` leaves no room for text beside the special tokens.
        """
        self.encoder = encoder or HuggingFaceEncoder(tokenizer)
        self._before, self._after = _special_tokens(tokenizer)
        self._template = template
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lazuli-tokenizer")
        self._num_special = len(self._before) + len(self._after)
        self.max_seq_length = max_seq_length
        if max_seq_length <= self._num_special:
            raise ConfigError(
                f"max_seq_length: {max_seq_length} leaves no room beside {self._num_special} special tokens"
            )

    @classmethod
    def from_config(cls, config: TokenizerConfig) -> "TextTokenizer":
        """Load the tokenizer of `config.checkpoint`.

        Raises:
            ConfigError: If the checkpoint or a parameter is unusable.
        """
        # The library's own threads would take a single text off the caller's hands, which costs two wake-ups.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        checkpoint = load_checkpoint(config.checkpoint)
        template = Template(
            prompts={**checkpoint.prompts, **config.parsed_prompts()},
            default_prompt_name=config.default_prompt_name or checkpoint.default_prompt_name,
            instruction_template=config.instruction_template,
        )
        definition = read_definition(checkpoint.path)
        tokenizer = load_reference(definition)
        encoder = choose_encoder(config.tokenizer_backend, definition, tokenizer)
        threads = config.threads or len(os.sched_getaffinity(0))
        return cls(tokenizer, template, _max_seq_length(config, checkpoint), threads, encoder)

    def tokenize(self, texts: Sequence[str], options: RequestOptions, name: str = "text") -> list[TokenizedText]:
        """Tokenise the texts of one request.

        Args:
            texts: N strings.
            options: `prompt_name`, `instruction` and `truncate` count here.
            name: What error messages call the texts.

        Returns:
            N results in the order of `texts`.

        Raises:
            InputError: If a text is too long and must not be truncated, or no token is left of it; names the row.
            OptionError: If the prompt is not known.
        """
        before, after = self._template.around(options)
        wholes = [f"{before}{text}{after}" for text in texts] if before or after else texts
        inputs = [self._near_end(text, options.truncate) for text in wholes]
        return [
            self._fit(ids, options.truncate, f"{name}[{row}]", whole=inputs[row] is wholes[row])
            for row, ids in enumerate(self._encode(inputs))
        ]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        few = self.encoder.chars_for_threads
        if few is None or len(texts) == 1 or sum(map(len, texts)) < few:
            return self.encoder.encode(texts)
        # More pieces than threads, as some texts are longer than others.
        size = -(-len(texts) // (4 * self.threads))
        pieces = [texts[start : start + size] for start in range(0, len(texts), size)]
        return [ids for piece in self._pool.map(self.encoder.encode, pieces) for ids in piece]

    def _near_end(self, text: str, truncate: str) -> str:
        """The text, or of one that is much too long enough of the end that is kept.

        Megabytes would keep the tokenizer from everybody else for seconds, only to be cut or refused. A token hangs on
        what is near it, so with some tokens to spare the first ones are those of the whole text.
        """
        size = _CHARS_PER_TOKEN * self.max_seq_length
        while size < len(text):
            piece = text[-size:] if truncate == "start" else text[:size]
            if len(self.encoder.encode([piece])[0]) >= self.max_seq_length + _SPARE_TOKENS:
                return piece
            size *= 4
        return text

    def _fit(self, ids: list[int], truncate: str, where: str, *, whole: bool) -> TokenizedText:
        """Put the special tokens around the ids of a text, which is cut before if it must be."""
        count = len(ids) + self._num_special
        if count == 0:
            raise InputError(f"{where}: no token is left of it, so there is nothing to embed")
        if count > self.max_seq_length:
            if truncate == "none":
                tokens = f"{'' if whole else 'over '}{count} tokens"
                raise InputError(
                    f"{where}: {tokens}, but at most {self.max_seq_length} are allowed; "
                    'shorten it or pass truncate="end"'
                )
            room = self.max_seq_length - self._num_special
            ids = ids[-room:] if truncate == "start" else ids[:room]
        return TokenizedText([*self._before, *ids, *self._after], truncated=count > self.max_seq_length)


def pad(texts: Sequence[TokenizedText]) -> tuple[np.ndarray, np.ndarray]:
    """Lay ragged ids out as a rectangle, which is what a Triton tensor can carry.

    Returns:
        input_ids [N, S] int32 and attention_mask [N, S] int8, S the longest of the N texts; padding is 0 in both.
    """
    if len(texts) == 1:
        row = np.array([texts[0].input_ids], dtype=np.int32)
        return row, _ones(row.shape[1])
    lengths = np.fromiter((len(text.input_ids) for text in texts), dtype=np.int64, count=len(texts))
    attention_mask = np.arange(lengths.max())[None, :] < lengths[:, None]
    input_ids = np.zeros(attention_mask.shape, dtype=np.int32)
    input_ids[attention_mask] = np.concatenate([text.input_ids for text in texts])
    return input_ids, attention_mask.astype(np.int8)


@lru_cache(maxsize=1024)
def _ones(length: int) -> np.ndarray:
    """[1, length] int8: kept, so not to be written to. Not marked so, as Triton asks for arrays that could be."""
    return np.ones((1, length), dtype=np.int8)


def decode_texts(values: np.ndarray, name: str = "text") -> list[str]:
    """Decode a Triton BYTES tensor [N, 1].

    Raises:
        InputError: If the shape is not [N, 1], there is no row, or a row is not valid UTF-8; names row and byte.
    """
    if values.ndim != 2 or values.shape[1] != 1:
        raise InputError(f"{name}: the shape must be [N, 1], one text a row, got {list(values.shape)}")
    if values.shape[0] == 0:
        raise InputError(f"{name}: there is no text; at least 1 row is needed")
    texts = []
    for row, value in enumerate(values[:, 0]):
        try:
            texts.append(value.decode("utf-8") if isinstance(value, bytes) else str(value))
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise InputError(f"{name}[{row}]: not valid UTF-8, byte 0x{byte:02x} at offset {error.start}") from None
    return texts


def _special_tokens(tokenizer: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that stand before and after each text."""
    for text in ("a", "1", ".", *tokenizer.get_vocab()):
        encoding = tokenizer.encode(text)
        mask = encoding.special_tokens_mask
        if 0 in mask:
            start, end = mask.index(0), len(mask) - mask[::-1].index(0)
            return encoding.ids[:start], encoding.ids[end:]
    raise ConfigError("checkpoint: its tokenizer makes no token of any text")


def _max_seq_length(config: TokenizerConfig, checkpoint: Checkpoint) -> int:
    if config.max_seq_length is None:
        return checkpoint.max_seq_length
    if config.max_seq_length > checkpoint.max_positions:
        raise ConfigError(
            f"max_seq_length: {config.max_seq_length}, but the model takes {checkpoint.max_positions} tokens"
        )
    return config.max_seq_length
