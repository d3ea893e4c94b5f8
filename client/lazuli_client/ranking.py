"""What a caller gets back for a query and its documents, and how it is made from the outputs of the server.

Takes output tensors by name, returns a `Ranking`. Does not know protocols.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lazuli_client.embeddings import Outputs, column
from lazuli_client.errors import InvalidInputError
from lazuli_client.reading import Reading


@dataclass(frozen=True)
class Scores:
    """Scores of N documents, in the order of the input.

    Attributes:
        scores: [N], float32.
        token_counts: [N], int32; tokens of each pair that the model saw.
        truncated: [N], bool; whether something of the pair was cut off.
    """

    scores: NDArray[np.float32]
    token_counts: NDArray[np.int32]
    truncated: NDArray[np.bool_]


@dataclass(frozen=True)
class Ranked:
    """One document of a ranking.

    Attributes:
        index: Its place among the documents that were passed.
        score: How well it answers the query; what range scores have, depends on the model.
        document: Its text, None unless it was asked for.
    """

    index: int
    score: float
    document: str | None = None


@dataclass(frozen=True)
class Ranking:
    """The K best documents, best first; of equal ones the earlier. To iterate over it gives `Ranked` ones.

    Attributes:
        indices: [K], int64; places among the documents that were passed.
        scores: [K], float32.
        token_counts: [K], int32; tokens of each pair that the model saw.
        truncated: [K], bool; whether something of the pair was cut off.
        documents: The K texts, None unless they were asked for.
    """

    indices: NDArray[np.int64]
    scores: NDArray[np.float32]
    token_counts: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    documents: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Ranked]:
        texts = self.documents or [None] * len(self)
        for index, score, text in zip(self.indices, self.scores, texts, strict=True):
            yield Ranked(int(index), float(score), text)


def check_top_k(top_k: int | None) -> None:
    """Check how many documents are wanted.

    Raises:
        InvalidInputError: If it is less than one.
    """
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise InvalidInputError(f"top_k: must be a positive integer, got {top_k!r}")


def rank(scores: Scores, documents: Sequence[str], top_k: int | None, return_documents: bool) -> Ranking:
    """The best of the documents."""
    best = np.argsort(-scores.scores, kind="stable")[:top_k]
    return Ranking(
        indices=best.astype(np.int64),
        scores=scores.scores[best],
        token_counts=scores.token_counts[best],
        truncated=scores.truncated[best],
        documents=tuple(documents[index] for index in best) if return_documents else None,
    )


def _read(outputs: Outputs, num_rows: int) -> Scores:
    return Scores(
        column(outputs, "score", num_rows).astype(np.float32, copy=False),
        column(outputs, "token_count", num_rows).astype(np.int32),
        column(outputs, "truncated", num_rows).astype(np.bool_),
    )


def _join(pieces: Sequence[Scores]) -> Scores:
    return Scores(
        np.concatenate([piece.scores for piece in pieces]),
        np.concatenate([piece.token_counts for piece in pieces]),
        np.concatenate([piece.truncated for piece in pieces]),
    )


SCORES = Reading(_read, _join)
