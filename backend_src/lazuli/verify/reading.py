"""How texts are to be read by a reference, so that it gets what the model gets.

Takes a checkpoint and the parameters of the model's tokenizer, returns prompts and limits. Knows no library.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lazuli.checkpoint import Checkpoint
from lazuli.config import TokenizerConfig
from lazuli.pairs.config import PairTokenizerConfig
from lazuli.repository.task_config import ReaderConfig
from lazuli.template import INPUT_TYPE_PROMPTS


@dataclass(frozen=True)
class Reading:
    """What stands before texts, and how long they may be.

    Attributes:
        prompts: Of `query` and `document`; empty for none.
        max_seq_length: Most tokens of a text or pair.
        reader: All parameters.
    """

    prompts: Mapping[str, str]
    max_seq_length: int
    reader: ReaderConfig

    @classmethod
    def of(cls, checkpoint: Checkpoint, reader: ReaderConfig) -> "Reading":
        """Read it."""
        known = dict(checkpoint.prompts)
        if isinstance(reader, TokenizerConfig):
            known |= reader.parsed_prompts()
        named = {kind: [known[name] for name in names if name in known] for kind, names in INPUT_TYPE_PROMPTS.items()}
        prompts = {kind: found[0] if found else "" for kind, found in named.items()}
        limit = checkpoint.max_seq_length
        if isinstance(reader, TokenizerConfig):
            limit = reader.max_seq_length or limit
        elif isinstance(reader, PairTokenizerConfig):
            from lazuli.pairs.tokenizer import find_limit

            limit = find_limit(reader, checkpoint)
            prompts["query"] = reader.default_instruction or prompts["query"]
        return cls(prompts, limit, reader)
