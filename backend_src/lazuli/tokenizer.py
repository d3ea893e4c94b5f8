"""Texts to token ids, with templates and truncation.

Takes UTF-8 strings and request options, returns ragged ids. A text never becomes special tokens: those are added around
it, and stay when it is cut. Knows nothing of Triton or torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain

import numpy as np
import tokenizers

from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import TokenizerConfig
from lazuli.errors import ConfigError, InputError
from lazuli.options import RequestOptions
from lazuli.reference_encoder import HuggingFaceEncoder, load_reference, use_threads
from lazuli.splitting.chunks import CHUNK_MARK, Frame, cut, part
from lazuli.template import Template
from lazuli.text_encoders import TextEncoder, choose_encoder
from lazuli.text_reader import TextReader
from lazuli.tokenizer_definition import read_definition
from lazuli.tokenwise.prefixes import read_prefixes

# Of a text that is cut into chunks; and of the table of all texts of a request, as 1024 texts of 32768 tokens make.
_MOST_TOKENS = 1 << 20
_MOST_PLACES = 1 << 25


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """One text as the model will read it.

    Attributes:
        input_ids: Token ids, special tokens included.
        truncated: Whether something of the text was cut off.
        chunk_starts: Where further chunks begin, if it is cut into several.
    """

    input_ids: list[int]
    truncated: bool
    chunk_starts: Sequence[int] = ()


class TextTokenizer(TextReader):
    """The tokenizer of one checkpoint."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        template: Template,
        max_seq_length: int,
        threads: int = 1,
        encoder: TextEncoder | None = None,
        prefixes: Mapping[str, int] | None = None,
    ) -> None:
        """Wrap a loaded tokenizer; its own padding and truncation are turned off.

        Args:
            tokenizer: The tokenizer, which says what special tokens are put around a text.
            template: What is put around each text.
            max_seq_length: Most tokens of a text.
            threads: Threads that share the texts of one call, if they are many.
            encoder: What turns texts into ids; None takes the tokenizer for that too.
            prefixes: What prompts of the template may begin with that is one special token, and its id.

        Raises:
            ConfigError: If `max_seq_length` leaves no room for text beside the special tokens.
        """
        super().__init__(encoder or HuggingFaceEncoder(tokenizer), max_seq_length, threads)
        self.special = Frame(*_special_tokens(tokenizer))
        self.template = template
        self._prefixes = prefixes or {}
        if max_seq_length <= len(self.special):
            raise ConfigError(
                f"max_seq_length: {max_seq_length} leaves no room beside {len(self.special)} special tokens"
            )

    @classmethod
    def from_config(cls, config: TokenizerConfig) -> "TextTokenizer":
        """Load the tokenizer of `config.checkpoint`.

        Raises:
            ConfigError: If the checkpoint or a parameter is unusable.
        """
        threads = use_threads(config.threads)
        checkpoint = load_checkpoint(config.checkpoint)
        template = Template(
            prompts={**checkpoint.prompts, **config.parsed_prompts()},
            default_prompt_name=config.default_prompt_name or checkpoint.default_prompt_name,
            instruction_template=config.instruction_template,
        )
        definition = read_definition(checkpoint.path)
        tokenizer = load_reference(definition)
        encoder = choose_encoder(config.tokenizer_backend, definition, tokenizer, threads)
        prefixes = read_prefixes(checkpoint, definition)
        return cls(tokenizer, template, _max_seq_length(config, checkpoint), threads, encoder, prefixes)

    def tokenize(self, texts: Sequence[str], options: RequestOptions, name: str = "text") -> list[TokenizedText]:
        """Tokenise the texts of one request.

        Args:
            texts: N strings.
            options: Those about prompts, `truncate` and `overlap` count here.
            name: What error messages call the texts.

        Returns:
            N results in the order of `texts`.

        Raises:
            InputError: If a text is too long and must not be truncated, or no token is left of it; names the row.
            OptionError: If the prompt is not known.
        """
        before, after = self.template.around(options)
        frame, before = self._frame(before, options)
        wholes = [f"{before}{text}{after}" for text in texts] if before or after else texts
        if options.truncate == "split":
            return self._split_all(wholes, (before, after), options.overlap, name)
        inputs = [self.near_end(text, options.truncate) for text in wholes]
        return [
            self._fit(ids, frame, options.truncate, f"{name}[{row}]", whole=inputs[row] is wholes[row])
            for row, ids in enumerate(self.read(inputs))
        ]

    def _frame(self, before: str, options: RequestOptions) -> tuple[Frame, str]:
        """The special tokens around a text and the rest of its prompt, which may begin with one of them."""
        prefix = next((prefix for prefix in self._prefixes if before.startswith(prefix)), None)
        if prefix is None or options.instruction is not None:  # an instruction is somebody's text
            return self.special, before
        number = self._prefixes[prefix]
        return Frame([*self.special.before, number], self.special.after), before.removeprefix(prefix)

    def _fit(self, ids: list[int], frame: Frame, truncate: str, where: str, *, whole: bool) -> TokenizedText:
        """Put the special tokens around the ids of a text, which is cut before if it must be."""
        count = len(ids) + len(frame)
        if count == 0:
            raise InputError(f"{where}: no token is left of it, so there is nothing to embed")
        if count > self.max_seq_length:
            if truncate == "none":
                tokens = f"{'' if whole else 'over '}{count} tokens"
                raise InputError(
                    f"{where}: {tokens}, but at most {self.max_seq_length} are allowed; "
                    'shorten it or pass truncate="end"'
                )
            room = self.max_seq_length - len(frame)
            ids = ids[len(ids) - room :] if truncate == "start" else ids[:room]
        return TokenizedText(frame.around(ids), truncated=count > self.max_seq_length)

    def _split_all(
        self, texts: Sequence[str], prompt: tuple[str, str], overlap: int | None, name: str
    ) -> list[TokenizedText]:
        """Read texts with their prompts; one that is too long becomes chunks, each with the prompt."""
        rows = self.read([self.near_end(text, "end", _MOST_TOKENS) for text in texts])
        before, after = self.read(prompt)
        return [
            self._split(ids, before, after, overlap, f"{name}[{row}]")
            if len(ids) + len(self.special) > self.max_seq_length
            else self._fit(ids, self.special, "none", f"{name}[{row}]", whole=True)
            for row, ids in enumerate(rows)
        ]

    def _split(
        self, ids: list[int], before: list[int], after: list[int], overlap: int | None, where: str
    ) -> TokenizedText:
        if len(ids) > _MOST_TOKENS:
            raise InputError(f"{where}: over {_MOST_TOKENS} tokens are too many for one text, even in chunks")
        prompt, body = part(ids, before, after)
        frame = Frame([*self.special.before, *prompt.before], [*prompt.after, *self.special.after])
        chunks = cut(body, self.max_seq_length, frame, overlap, where)
        starts = list(accumulate(map(len, chunks[:-1])))
        return TokenizedText(list(chain.from_iterable(chunks)), truncated=False, chunk_starts=starts)


def pad(texts: Sequence[TokenizedText]) -> tuple[np.ndarray, np.ndarray]:
    """Lay ragged ids out as a rectangle, which is what a Triton tensor can carry.

    Returns:
        input_ids [N, S] int32 and attention_mask [N, S] int8, S the longest of the N texts; padding is 0 in both.
        The mask is 1 for a token, and `CHUNK_MARK` for the first one of each further chunk.

    Raises:
        InputError: If the rectangle would be too large.
    """
    input_ids, attention_mask = _rectangle(texts)
    if any(text.chunk_starts for text in texts):
        attention_mask = attention_mask.copy()
        for row, text in enumerate(texts):
            attention_mask[row, list(text.chunk_starts)] = CHUNK_MARK
    return input_ids, attention_mask


def _rectangle(texts: Sequence[TokenizedText]) -> tuple[np.ndarray, np.ndarray]:
    if len(texts) == 1:
        row = np.array([texts[0].input_ids], dtype=np.int32)
        return row, _ones(row.shape[1])
    lengths = np.fromiter((len(text.input_ids) for text in texts), dtype=np.int64, count=len(texts))
    longest = int(lengths.max())
    if longest * len(texts) > _MOST_PLACES:
        raise InputError(
            f"text[{int(lengths.argmax())}]: {longest} tokens make the table of all {len(texts)} texts too large; "
            "send it in a request of its own"
        )
    attention_mask = np.arange(longest)[None, :] < lengths[:, None]
    input_ids = np.zeros(attention_mask.shape, dtype=np.int32)
    input_ids[attention_mask] = np.concatenate([np.array(text.input_ids, dtype=np.int32) for text in texts])
    return input_ids, attention_mask.astype(np.int8)


@lru_cache(maxsize=1024)
def _ones(length: int) -> np.ndarray:
    """[1, length] int8: kept, so not to be written to. Not marked so, as Triton asks for arrays that could be."""
    return np.ones((1, length), dtype=np.int8)


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
