"""A model of a running server, by way of its client.

Takes an address and a name, answers as `model.Model` has it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazuli.verify.answers import Labels
from lazuli.verify.model import Model, Sparse

if TYPE_CHECKING:
    from lazuli_client.tls import Tls


class ServerModel(Model):
    """A served model of any task."""

    def __init__(self, url: str, protocol: Any, model: str, tls: "Tls | None" = None) -> None:
        """Get ready to connect.

        Args:
            url: host:port.
            protocol: `grpc` or `http`.
            model: Its name.
            tls: Encrypts; None leaves it to the scheme of `url`.
        """
        from lazuli_client import LazuliClient

        self._client = LazuliClient(url, protocol=protocol, model=model, tls=tls)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def dense(self, texts: Sequence[str], input_type: str, encoding: str = "float32") -> np.ndarray:
        """See `Model`."""
        vectors: np.ndarray = self._embed(texts, input_type, encoding).embeddings
        return vectors

    def sparse(self, texts: Sequence[str], input_type: str) -> list[Sparse]:
        """See `Model`."""
        return [(row.ids, row.weights) for row in self._embed(texts, input_type, "sparse").sparse]

    def multi(self, texts: Sequence[str], input_type: str) -> list[np.ndarray]:
        """See `Model`."""
        return list(self._embed(texts, input_type, "multi").multi)

    def chunks(self, documents: Sequence[Sequence[str]], input_type: str, encoding: str = "float32") -> np.ndarray:
        """See `Model`."""
        answers = self._client.embed_context(documents, input_type=input_type, output=encoding)
        return np.concatenate([answer.embeddings for answer in answers])

    def scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """See `Model`."""
        ranking = self._client.rerank(query, documents, activation="none")
        values = np.empty(len(documents))
        values[ranking.indices] = ranking.scores
        return values

    def labels(self, texts: Sequence[str]) -> Labels:
        """See `Model`."""
        answer = self._client.classify(texts, truncate="end")
        return Labels(answer.probabilities, answer.names)

    def _embed(self, texts: Sequence[str], input_type: str, output: str) -> Any:
        return self._client.embed(list(texts), input_type=input_type, truncate="end", output=output)
