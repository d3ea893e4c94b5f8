"""What locust's users ask for, and in which proportion.

Takes texts of files; returns requests of a kind, and checks their answers. Knows nothing of locust or of protocols.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lazuli_client.embeddings import Outputs, from_outputs
from lazuli_client.options import EmbedOptions
from lazuli_client.request import EmbedRequest, text_request
from lazuli_client.task_options import RerankOptions

_UNIT = 1e-3


@dataclass(frozen=True)
class Kind:
    """One kind of request.

    Attributes:
        name: As the statistics call it.
        rows: Texts, or pairs, of a request.
        wait_s: How long a user waits between an answer and the next request: the least and the most.
        interactive: Whether a person waits for the answer, so that its time is what counts.
    """

    name: str
    rows: int
    wait_s: tuple[float, float]
    interactive: bool


QUERY = Kind("query: 1 text", 1, (0.05, 0.5), True)
BULK = Kind("bulk: 32 passages", 32, (0.0, 0.0), False)
RERANK = Kind("rerank: 1 query, 16 documents", 16, (0.2, 1.0), True)
KINDS = (QUERY, BULK, RERANK)

# Name -> how many users there are of each kind. `spike` is queries whose number jumps; its users come and go.
SHAPES: Mapping[str, Mapping[Kind, int]] = {
    "query": {QUERY: 1},
    "bulk": {BULK: 1},
    "rerank": {RERANK: 1},
    "mixed": {QUERY: 4, BULK: 1},
    "spike": {QUERY: 1},
}
SPIKE = "spike"
# Of a run: the spike begins after the first part, and ends after the second.
_SPIKE_BEGINS, _SPIKE_ENDS = 0.4, 0.6


def weights_of(shape: str, with_rerank: bool) -> Mapping[Kind, int]:
    """Users of each kind; those of mixed traffic rerank as well if there is a model for it."""
    extra = {RERANK: 1} if shape == "mixed" and with_rerank else {}
    return {**SHAPES[shape], **extra}


def users_at(elapsed_s: float, seconds: float, users: int, peak: int) -> int:
    """Users at a moment of a run with a spike; 0 where the run is over."""
    if elapsed_s >= seconds:
        return 0
    return peak if _SPIKE_BEGINS <= elapsed_s / seconds < _SPIKE_ENDS else users


class Traffic:
    """Makes requests out of texts drawn at random."""

    def __init__(self, queries: Sequence[str], passages: Sequence[str], rerank_model: str, seed: str) -> None:
        """Keep the texts.

        Args:
            queries: Short texts.
            passages: Texts to embed in bulk or to rerank; what is too long is cut by the server.
            rerank_model: Its name on the server.
            seed: Of the random numbers.
        """
        self._queries = queries
        self._passages = passages
        self._rerank_model = rerank_model
        self._random = random.Random(seed)

    def chance(self) -> float:
        """A random number from 0 to 1."""
        return self._random.random()

    def make(self, kind: Kind) -> EmbedRequest:
        """A request of a kind."""
        if kind is RERANK:
            return self._pairs(kind.rows)
        source = self._queries if kind is QUERY else self._passages
        texts = self._random.choices(source, k=kind.rows)
        return text_request("embed", texts, EmbedOptions(truncate="end").parameters(), range(kind.rows))

    def _pairs(self, count: int) -> EmbedRequest:
        query, documents = self._random.choice(self._queries), self._random.choices(self._passages, k=count)
        tensors = {
            name: np.array([text.encode() for text in texts], dtype=np.object_).reshape(-1, 1)
            for name, texts in (("query", [query] * count), ("document", documents))
        }
        return EmbedRequest(self._rerank_model, tensors, RerankOptions(truncate="end").parameters(), range(count))


def check_answer(request: EmbedRequest, outputs: Outputs) -> None:
    """Look at an answer.

    Raises:
        ValueError: If it lacks rows, a vector is not of unit length or a score not finite.
        lazuli_client.ServerError: If it lacks an output.
    """
    if "query" in request.tensors:
        scores = outputs["score"]
        if scores.shape != (len(request.rows), 1) or not np.isfinite(scores).all():
            raise ValueError(f"scores of shape {list(scores.shape)} for {len(request.rows)} pairs, or not finite")
        return
    lengths = np.linalg.norm(from_outputs(outputs, len(request.rows)).embeddings, axis=1)
    if np.abs(lengths - 1).max() > _UNIT:
        raise ValueError(f"a vector is not of unit length: {lengths.min():.4f} to {lengths.max():.4f}")
