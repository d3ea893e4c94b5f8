"""What a model makes of a sample, in the kinds that can be compared.

Takes arrays, returns scores, or arrays with names for a file. Knows nothing of models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from lazuli.verify import measures

Arrays = Mapping[str, np.ndarray]


class Answers:
    """Base of all kinds."""

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file holds of it, by name."""
        raise NotImplementedError

    @classmethod
    def from_arrays(cls, content: Arrays) -> Self:
        """Read what a file holds; raises KeyError or ValueError if it is something else."""
        raise NotImplementedError


@dataclass(frozen=True)
class Vectors(Answers):
    """One vector a text.

    Attributes:
        queries: [Q, D] float.
        documents: [N, D] float.
    """

    queries: np.ndarray
    documents: np.ndarray

    def scores(self) -> np.ndarray:
        """How similar each query is to each document, [Q, N]: by cosine."""
        return measures.scores(self.queries, self.documents)

    def arrays(self) -> dict[str, np.ndarray]:
        """`queries` and `documents`."""
        return {"queries": self.queries, "documents": self.documents}

    @classmethod
    def from_arrays(cls, content: Arrays) -> Self:
        """See `Answers`."""
        return cls(_matrix(content, "queries"), _matrix(content, "documents"))


@dataclass(frozen=True)
class Codes(Vectors):
    """Vectors that were decoded.

    Attributes:
        codes: The integers that they were.
    """

    codes: Vectors


class Bits(Vectors):
    """Vectors of -1 and 1."""

    def scores(self) -> np.ndarray:
        """By Hamming distance, with the sign turned."""
        products: np.ndarray = self.queries.astype(np.float64) @ self.documents.T.astype(np.float64)
        return (products - self.queries.shape[1]) / 2


class Weights(Vectors):
    """A weight for each id of the vocabulary, zero for most."""

    def scores(self) -> np.ndarray:
        """By product: what two texts share."""
        products: np.ndarray = self.queries.astype(np.float64) @ self.documents.T.astype(np.float64)
        return products


@dataclass(frozen=True)
class TokenVectors(Answers):
    """One vector a token.

    Attributes:
        queries: Q arrays, [S, D] float.
        documents: N arrays.
    """

    queries: Sequence[np.ndarray]
    documents: Sequence[np.ndarray]

    def scores(self) -> np.ndarray:
        """By MaxSim, [Q, N]."""
        return measures.max_sim(self.queries, self.documents)

    def arrays(self) -> dict[str, np.ndarray]:
        """`queries` [Q, S, D], padded with zeros, `queries_count` [Q], and the same for `documents`."""
        content = {}
        for name, rows in (("queries", self.queries), ("documents", self.documents)):
            counts = np.array([len(row) for row in rows])
            content[name] = np.zeros((len(rows), counts.max(), rows[0].shape[1]), dtype=np.float32)
            content[name][np.arange(counts.max()) < counts[:, None]] = np.concatenate(rows)
            content[f"{name}_count"] = counts
        return content

    @classmethod
    def from_arrays(cls, content: Arrays) -> Self:
        """See `Answers`."""
        parts = []
        for name in ("queries", "documents"):
            padded, counts = content[name], content[f"{name}_count"].reshape(-1)
            fits = padded.ndim == 3 and len(padded) == len(counts) and 0 < min(counts) <= max(counts) <= padded.shape[1]
            if not fits:
                raise ValueError(f"{name} of shape {list(padded.shape)} with {len(counts)} counts")
            parts.append([row[:count] for row, count in zip(padded, counts, strict=True)])
        return cls(*parts)


@dataclass(frozen=True)
class Scores(Answers):
    """How well documents answer queries: logits, or what a model compares vectors by.

    Attributes:
        values: [Q, N] float; NaN for pairs that were not asked for.
    """

    values: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """`scores`."""
        return {"scores": self.values}

    @classmethod
    def from_arrays(cls, content: Arrays) -> Self:
        """See `Answers`."""
        return cls(_matrix(content, "scores"))


@dataclass(frozen=True)
class Labels(Answers):
    """The probability of each label, for each text.

    Attributes:
        values: [T, L] float, of the queries and then the documents.
        names: Of the L labels.
    """

    values: np.ndarray
    names: tuple[str, ...]

    def arrays(self) -> dict[str, np.ndarray]:
        """`probabilities` and `labels`."""
        return {"probabilities": self.values, "labels": np.array(self.names)}

    @classmethod
    def from_arrays(cls, content: Arrays) -> Self:
        """See `Answers`."""
        values, names = _matrix(content, "probabilities"), tuple(map(str, content["labels"].tolist()))
        if values.shape[1] != len(names):
            raise ValueError(f"probabilities of {values.shape[1]} labels, but {len(names)} names")
        return cls(values, names)


SCORES, LABELS = "scores", "labels"
# All kinds by name; those of vectors are called as the outputs of a model.
KINDS: Mapping[str, type[Answers]] = {
    "float32": Vectors,
    "float16": Vectors,
    "int8": Vectors,
    "uint8": Vectors,
    "binary": Bits,
    "ubinary": Bits,
    "sparse": Weights,
    "multi": TokenVectors,
    SCORES: Scores,
    LABELS: Labels,
}


def _matrix(content: Arrays, name: str) -> np.ndarray:
    values = content[name]
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError(f"{name} of shape {list(values.shape)} and type {values.dtype}")
    return values
