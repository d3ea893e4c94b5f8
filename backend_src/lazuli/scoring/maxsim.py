"""Late interaction (Khattab and Zaharia, 2020): for each token of a query the most similar one of a document.

Takes packed vectors of tokens and which sequences make a pair, returns one score a pair, in float32. Knows nothing of
models. Each pair is summed on its own and in a fixed order, so that its score does not depend on what shares the batch.
"""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Pairs:
    """P pairs of sequences of a batch.

    Attributes:
        queries: [P] int64, on the host: the number of the sequence that is the query.
        documents: [P] int64, on the host: likewise.
    """

    queries: np.ndarray
    documents: np.ndarray

    def __len__(self) -> int:
        return len(self.queries)


def maxsim(vectors: torch.Tensor, cu_seqlens: np.ndarray, pairs: Pairs) -> torch.Tensor:
    """The sum over a query's tokens of the largest product with a token of the document. Does not synchronise.

    Args:
        vectors: [T, D], of the tokens of queries and documents.
        cu_seqlens: [B + 1] int32 on the host; sequence i owns the vectors cu_seqlens[i] to cu_seqlens[i + 1].
        pairs: Of these sequences.

    Returns:
        [P] float32 on the device of the vectors. It is NaN where a vector of the pair holds NaN or infinity, and
        minus infinity for a document without vectors.
    """
    if vectors.is_cuda:
        from lazuli.triton_kernels import maxsim as kernel

        return kernel.maxsim(vectors, cu_seqlens, pairs.queries, pairs.documents)
    scores = torch.empty(len(pairs), dtype=torch.float32, device=vectors.device)
    exact = vectors.float()
    for place, (query, document) in enumerate(zip(pairs.queries.tolist(), pairs.documents.tolist(), strict=True)):
        tokens, others = (exact[cu_seqlens[number] : cu_seqlens[number + 1]] for number in (query, document))
        if not len(others):
            scores[place] = -torch.inf
            continue
        products = tokens @ others.t()
        scores[place] = products.amax(dim=1).sum() + (products * 0).sum()  # NaN stays NaN, infinity becomes it
    return scores
