"""All heads of a checkpoint that look at single tokens.

Takes a checkpoint, returns its heads on a device. Knows nothing of batches or requests.
"""

from dataclasses import dataclass

import torch

from lazuli.checkpoint import Checkpoint
from lazuli.models.base import ModelShape
from lazuli.tokenwise.facts import TokenFacts, read_token_facts
from lazuli.tokenwise.multi_head import MultiHead
from lazuli.tokenwise.sparse_head import SpladeHead, TokenWeights


@dataclass(frozen=True)
class TokenHeads:
    """What a checkpoint has.

    Attributes:
        facts: What its files say.
        weights: Of the tokens of a text, or None.
        splade: Of all ids, or None.
        multi: One vector a token, or None.
    """

    facts: TokenFacts
    weights: TokenWeights | None = None
    splade: SpladeHead | None = None
    multi: MultiHead | None = None

    def __bool__(self) -> bool:
        """Whether there is any."""
        return not (self.weights is None and self.splade is None and self.multi is None)


def load_token_heads(checkpoint: Checkpoint, shape: ModelShape, device: torch.device, dtype: torch.dtype) -> TokenHeads:
    """Read the heads of a checkpoint; most have none.

    Args:
        checkpoint: Whose they are.
        shape: Of its model.
        device: Where they go.
        dtype: Of the model.

    Raises:
        ConfigError: If one asks for something that is not supported, or its weights are not what they should be.
    """
    facts = read_token_facts(checkpoint)
    weights = splade = multi = None
    if facts.sparse is not None and facts.sparse.file is not None:
        weights = TokenWeights.read(facts.sparse, shape.hidden_size, shape.vocab_size, device)
    elif facts.sparse is not None:
        splade = SpladeHead.read(facts.sparse, checkpoint, device, dtype)
    if facts.multi is not None:
        multi = MultiHead.read(facts.multi, shape.hidden_size, device, dtype)
    return TokenHeads(facts, weights, splade, multi)
