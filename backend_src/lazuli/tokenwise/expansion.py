"""Tokens that late interaction appends to short queries, as ColBERT does: what the model makes of them counts, too.

Takes rows of ids, returns longer ones. Knows nothing of models.
"""

from collections.abc import Sequence

import numpy as np

from lazuli.tokenwise.facts import Expansion


def expand(
    rows: Sequence[np.ndarray], is_query: Sequence[bool], expansion: Expansion | None
) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Make queries as long as they should be; longer ones stay as they are.

    Args:
        rows: Ids of B texts.
        is_query: Which of them are queries.
        expansion: Of the model, if it has one.

    Returns:
        Ids of B texts, and [B] int64, of each how many of its first tokens are seen by attention; None if all are.
    """
    if expansion is None or not any(is_query):
        return list(rows), None
    seen = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    longer = [
        np.concatenate([ids, np.full(max(0, expansion.length - len(ids)), expansion.token_id, dtype=np.int32)])
        if query
        else ids
        for ids, query in zip(rows, is_query, strict=True)
    ]
    return longer, None if expansion.attend else seen
