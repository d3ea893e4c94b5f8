"""One vector out of the hidden states of each sequence.

Takes packed hidden states, returns fp32 vectors. Knows nothing of models. Every row is reduced on its own and in a
fixed order, so that its vector does not depend on what shares the batch.
"""

import torch

from lazuli.outputs.finish import finish
from lazuli.outputs.quantize import Quantizer

MODES = ("mean", "cls", "last")


def pool_and_finish(
    hidden: torch.Tensor,
    cu_seqlens: torch.Tensor,
    mode: str,
    codes: torch.Tensor,
    max_seqlen: int,
    quantizer: Quantizer,
) -> torch.Tensor:
    """Reduce each sequence to one vector, and do with it what its code says. Does not synchronise a GPU.

    Args:
        hidden: As in `pool`.
        cu_seqlens: As in `pool`.
        mode: As in `pool`.
        codes: [B] int32, same device: see `lazuli.outputs.finish`.
        max_seqlen: An upper bound for the longest sequence.
        quantizer: Of the model.

    Returns:
        [B, D] float32: see `lazuli.outputs.finish`.

    Raises:
        ValueError: If the mode is unknown.
    """
    if hidden.is_cuda and mode in MODES:
        from lazuli.triton_kernels import pooling

        return pooling.pool(hidden, cu_seqlens, mode, codes, max_seqlen, quantizer)
    return finish(pool(hidden, cu_seqlens, mode), codes, quantizer)


def pooled_tokens(cu_seqlens: torch.Tensor, mode: str) -> torch.Tensor | None:
    """Where the one token of each sequence lies that its vector is made of; None if it is made of all.

    Args:
        cu_seqlens: As in `pool`.
        mode: As in `pool`.

    Returns:
        [B] int64. Of an empty sequence: any token of the batch.
    """
    if mode == "cls":
        # Behind the last sequence there may be no token any more.
        return torch.minimum(cu_seqlens[:-1], cu_seqlens[-1:] - 1).long()
    return (cu_seqlens[1:] - 1).clamp(min=0).long() if mode == "last" else None


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
