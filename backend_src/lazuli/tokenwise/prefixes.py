"""Prompts that begin with a token of their own, as those of late interaction do: `[Q] ` before each query.

Takes a checkpoint and the definition of its tokenizer, returns the ids of such tokens. A text never becomes one; a
prompt of the checkpoint may, as it was trained so. Knows no tokenizer library.
"""

from collections.abc import Mapping

from lazuli.checkpoint import Checkpoint
from lazuli.tokenizer_definition import Definition, token_ids


def read_prefixes(checkpoint: Checkpoint, definition: Definition) -> dict[str, int]:
    """What prompts begin with that is one token, and its id: a whole prompt, else its first word.

    Returns:
        The longest first; empty for other kinds of checkpoints, whose prompts are text.
    """
    if not checkpoint.late_interaction:
        return {}
    ids = token_ids(definition)
    found = {prefix for prompt in checkpoint.prompts.values() if (prefix := _prefix(prompt, ids))}
    return {prefix: ids[prefix] for prefix in sorted(found, key=len, reverse=True)}


def _prefix(prompt: str, ids: Mapping[str, int]) -> str | None:
    pieces = [prompt, *(prompt.split()[:1] if prompt[:1].strip() else [])]
    return next((piece for piece in pieces if piece and piece in ids), None)
