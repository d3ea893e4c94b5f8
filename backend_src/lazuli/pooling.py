"""One vector out of the hidden states of each sequence.

Takes packed hidden states, returns fp32 vectors. Knows nothing of models. Every row is reduced on its own and in a
fixed order, so that its vector does not depend on what shares the batch.
"""

import torch
import torch.nn.functional as F  # noqa: N812


def pool(hidden: torch.Tensor, cu_seqlens: torch.Tensor, mode: str) -> torch.Tensor:
    """Reduce each sequence to one vector. Does not synchronise.

    Args:
        hidden: [T, D]. Rows from cu_seqlens[-1] on are padding and not read.
        cu_seqlens: [B + 1] int32, same device; first 0. Empty sequences give vectors of no meaning.
        mode: `mean`, `cls` (the first token) or `last` (the last one).

    Returns:
        [B, D] float32, not normalised.

    Raises:
        ValueError: If the mode is unknown.
    """
    starts, ends = cu_seqlens[:-1].long(), cu_seqlens[1:].long()
    last_row = hidden.shape[0] - 1
    if mode == "mean":
        sums = torch.segment_reduce(hidden.float(), "sum", offsets=cu_seqlens.long(), unsafe=True, initial=0.0)
        return sums / (ends - starts).clamp(min=1).unsqueeze(1)
    if mode == "cls":
        return hidden[starts.clamp(max=last_row)].float()
    if mode == "last":
        return hidden[(ends - 1).clamp(min=0)].float()
    raise ValueError(f"unknown pooling {mode!r}")


def normalize(vectors: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Scale the chosen rows to unit length.

    Args:
        vectors: [B, D] float32.
        chosen: [B] bool, same device.

    Returns:
        [B, D] float32.
    """
    return torch.where(chosen.unsqueeze(1), F.normalize(vectors, dim=1), vectors)
