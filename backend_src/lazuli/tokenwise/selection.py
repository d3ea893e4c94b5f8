"""Which tokens of a batch have a vector.

Takes ids and where sequences lie, on the host, returns places of tokens. Knows nothing of models.
"""

from dataclasses import dataclass

import numpy as np
import torch

from lazuli.to_device import to_device
from lazuli.tokenwise.facts import MultiFacts


@dataclass(frozen=True)
class Selection:
    """Some tokens of a batch.

    Attributes:
        places: [T'] int64, ascending; None for all.
        cu_seqlens: [B + 1] int32; sequence i owns the tokens cu_seqlens[i] to cu_seqlens[i + 1] of those.
    """

    places: np.ndarray | None
    cu_seqlens: np.ndarray

    def of(self, hidden: torch.Tensor) -> torch.Tensor:
        """Their rows of [T, D]; on a GPU, too, it does not wait for the kernels before."""
        if self.places is None:
            return hidden
        return hidden[to_device(self.places, hidden.device)]


def select_tokens(input_ids: np.ndarray, cu_seqlens: np.ndarray, is_query: np.ndarray, facts: MultiFacts) -> Selection:
    """Choose.

    Args:
        input_ids: [T] int32.
        cu_seqlens: [B + 1] int32.
        is_query: [B] bool; of others the ids that a model skips are left out.
        facts: Of the model.
    """
    if not facts.skip_first and not facts.skipped_ids:
        return Selection(None, cu_seqlens)
    kept = np.ones(len(input_ids), dtype=np.bool_)
    if facts.skip_first:
        kept[cu_seqlens[:-1]] = False
    if facts.skipped_ids:
        in_document = np.repeat(~is_query, np.diff(cu_seqlens))
        kept &= ~(in_document & np.isin(input_ids, list(facts.skipped_ids)))
    starts = np.zeros(len(kept) + 1, dtype=np.int32)
    np.cumsum(kept, out=starts[1:])
    return Selection(np.flatnonzero(kept), starts[cu_seqlens])
