"""Products of sparse texts: the sum over the ids that two texts share of the product of their weights.

Takes a weight for each token of a batch and which sequences make a pair; an id that comes several times in a text
counts once, with its largest weight. Returns one score a pair. Knows nothing of models.
"""

import torch

from lazuli.scoring.maxsim import Pairs
from lazuli.to_device import to_device


def sparse_scores(
    input_ids: torch.Tensor, weights: torch.Tensor, cu_seqlens: torch.Tensor, pairs: Pairs, longest_query: int
) -> torch.Tensor:
    """Score pairs. Does not synchronise.

    Args:
        input_ids: [T] int32.
        weights: [T] float32, none negative.
        cu_seqlens: [B + 1] int32, same device.
        pairs: Of these sequences.
        longest_query: Most tokens of a query, or more.

    Returns:
        [P] float32. It is NaN where a weight of the pair is NaN or infinite.
    """
    device, num_tokens = weights.device, len(weights)
    sequence = torch.searchsorted(cu_seqlens[1:].long(), torch.arange(num_tokens, device=device), right=True)
    # Each id of each sequence once, in order: its key, and its largest weight.
    keys, order = ((sequence << 32) + input_ids).sort()
    is_first = torch.ones_like(keys, dtype=torch.bool)
    is_first[1:] = keys[1:] != keys[:-1]
    group = is_first.cumsum(0) - 1
    largest = torch.zeros_like(weights).scatter_reduce_(0, group, weights[order], "amax")
    places = torch.full_like(keys, torch.iinfo(torch.int64).max).scatter_(0, group, keys)
    queries, documents = (to_device(side, device) for side in (pairs.queries, pairs.documents))
    begin, end = (torch.searchsorted(places, side << 32) for side in (queries, queries + 1))
    place = begin[:, None] + torch.arange(longest_query, device=device)  # [P, longest_query]
    inside = place < end[:, None]
    place = place.clamp(max=num_tokens - 1)
    wanted = places[place] + ((documents - queries) << 32)[:, None]
    found = torch.searchsorted(places, wanted).clamp(max=num_tokens - 1)
    shared = inside & (places[found] == wanted)
    products = torch.where(shared, largest[place] * largest[found], 0).sum(dim=1)
    # What is not finite must not be left out for not being shared.
    poison = torch.zeros(len(cu_seqlens) - 1, device=device).index_add_(0, sequence, weights * 0)
    return products + poison[queries] + poison[documents]
