"""The chunks of documents to token ids, such that a document's chunks follow each other in one sequence.

Takes UTF-8 strings and which document each belongs to, returns the ids of each, with those that stand around it.
Special tokens and prompts stand once around a document, and belong to its first and last chunk; what a model wants
between chunks belongs to none. Knows nothing of Triton or torch.
"""

from collections.abc import Sequence

import numpy as np

from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.context.config import ContextTokenizerConfig
from lazuli.context.input import BETWEEN_MARK, group_rows, name_rows
from lazuli.context.options import ContextOptions
from lazuli.errors import ConfigError, InputError
from lazuli.tokenizer import TextTokenizer, TokenizedText, pad
from lazuli.tokenizer_definition import Definition, read_definition

# What Perplexity's model for contextual embeddings has between chunks, as its own code joins them.
_SEPARATORS = {"PPLXQwen3ContextualModel": "<|endoftext|>"}


class ContextTokenizer:
    """The tokenizer of one checkpoint, for chunks."""

    def __init__(self, tokenizer: TextTokenizer, separator: Sequence[int] = ()) -> None:
        """Wrap a tokenizer.

        Args:
            tokenizer: For texts.
            separator: Ids between the chunks of a document.
        """
        self._tokenizer = tokenizer
        self._separator = list(separator)
        self.threads = tokenizer.threads
        self.max_seq_length = tokenizer.max_seq_length

    @classmethod
    def from_config(cls, config: ContextTokenizerConfig) -> "ContextTokenizer":
        """Load the tokenizer of `config.checkpoint`.

        Raises:
            ConfigError: If the checkpoint or a parameter is unusable.
        """
        checkpoint = load_checkpoint(config.checkpoint)
        token = find_separator(checkpoint) if config.separator is None else config.separator
        separator = [_special_id(token, read_definition(checkpoint.path))] if token else []
        return cls(TextTokenizer.from_config(config), separator)

    def tokenize(
        self, texts: Sequence[str], document: np.ndarray, options: ContextOptions
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokenise the chunks of one request.

        Args:
            texts: N chunks.
            document: [N, 1] int32; equal for those of one document, which must be consecutive.
            options: Those about prompts count here.

        Returns:
            input_ids [N, S] int32 and attention_mask [N, S] int8, as `lazuli.context.input` reads them.

        Raises:
            InputError: If no token is left of a chunk, or a document is too long; names the rows.
            OptionError: If the prompt is not known.
        """
        groups = group_rows(document, len(texts))
        wholes = self._with_prompts(texts, groups, options)
        # A part of a chunk that is much too long for a document is enough to refuse it.
        rows = self._tokenizer.read([self._tokenizer.near_end(text, "end") for text in wholes])
        for row, ids in enumerate(rows):
            if not ids:
                raise InputError(f"text[{row}]: no token is left of it, so there is nothing to embed")
        for group in groups:
            self._join(rows, group)
        input_ids, attention_mask = pad([TokenizedText(ids, truncated=False) for ids in rows])
        attention_mask = attention_mask.copy()
        for group in groups:
            attention_mask[group.start + 1 : group.stop, : len(self._separator)] = BETWEEN_MARK
        return input_ids, attention_mask

    def _with_prompts(self, texts: Sequence[str], groups: list[range], options: ContextOptions) -> list[str]:
        before, after = self._tokenizer.template.around(options)
        wholes = list(texts)
        for group in groups:
            wholes[group[0]] = before + wholes[group[0]]
            wholes[group[-1]] += after
        return wholes

    def _join(self, rows: list[list[int]], group: range) -> None:
        """Put around the chunks of one document what belongs there."""
        special = self._tokenizer.special
        for row in group[1:]:
            rows[row] = [*self._separator, *rows[row]]
        rows[group[0]] = [*special.before, *rows[group[0]]]
        rows[group[-1]] = [*rows[group[-1]], *special.after]
        count, limit = sum(len(rows[row]) for row in group), self._tokenizer.max_seq_length
        if count > limit:
            raise InputError(
                f"{name_rows('text', group)}: {count} or more tokens in one document, but at most {limit} are allowed; "
                "send it as several documents"
            )


def find_separator(checkpoint: Checkpoint) -> str:
    """The token that a checkpoint wants between chunks; empty for most.

    The architecture does not tell: Perplexity's models for chunks and for single texts differ in the class that reads
    them, which their `config.json` names for transformers.
    """
    names = [*(checkpoint.model.get("auto_map") or {}).values(), *(checkpoint.model.get("architectures") or [])]
    found = (_SEPARATORS.get(str(name).rpartition(".")[-1]) for name in names)
    return next(filter(None, found), "")


def _special_id(token: str, definition: Definition) -> int:
    """The id of a special token. Looked up in the file: the tokenizer that is made of it may hide them from texts."""
    for entry in definition.get("added_tokens") or []:
        if entry["special"] and entry["content"] == token:
            return int(entry["id"])
    raise ConfigError(f"separator: {token!r} is not a special token of this checkpoint")
