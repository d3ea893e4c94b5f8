"""What answers: the model that is to be verified, or its reference.

Takes texts, returns arrays. Each kind of model overrides what it can; the rest refuses.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import numpy as np

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError, LazuliError
from lazuli.heads.task import CLASSIFY, CONTEXT, RERANK
from lazuli.options import ENCODINGS
from lazuli.verify.answers import KINDS, Answers, Codes, Labels, Scores, Vectors
from lazuli.verify.decoding import decode
from lazuli.verify.question import CHUNKS, Question

# Ids that have a weight, and the weights.
Sparse = tuple[np.ndarray, np.ndarray]


class Model:
    """Base of all of them.

    Attributes:
        name: What error messages call it.
    """

    name = "the model"

    def dense(self, texts: Sequence[str], input_type: str, encoding: str = "float32") -> np.ndarray:
        """Vectors, [N, D], or what an encoding of fewer bytes makes of them.

        Args:
            texts: N texts.
            input_type: `query` or `document`.
            encoding: One of `lazuli.options.ENCODINGS`.
        """
        self._refuse("dense vectors")

    def sparse(self, texts: Sequence[str], input_type: str) -> list[Sparse]:
        """Ids and weights of each text."""
        self._refuse("sparse vectors")

    def multi(self, texts: Sequence[str], input_type: str) -> list[np.ndarray]:
        """[S, D] of each text."""
        self._refuse("vectors of tokens")

    def chunks(self, documents: Sequence[Sequence[str]], input_type: str, encoding: str = "float32") -> np.ndarray:
        """The same for the chunks of all documents, each read with the rest of its document."""
        self._refuse("vectors of chunks in context")

    def scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """How well each document answers a query, [K], without an activation."""
        self._refuse("scores of pairs")

    def labels(self, texts: Sequence[str]) -> Labels:
        """Probabilities of the labels of each text."""
        self._refuse("labels")

    def close(self) -> None:
        """Let go what it holds."""

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(
            f"reference: {self.name} computes no {what} of this checkpoint; pass a file (--save writes one)"
        )


def ask(model: Model, question: Question, checkpoint: Checkpoint, calibration: str | None = None) -> Answers:
    """All that a comparison needs of a model.

    Args:
        model: What to ask.
        question: What for.
        checkpoint: Its checkpoint, which tells what codes and ids mean.
        calibration: File of the ranges of codes, if it is elsewhere.

    Raises:
        LazuliError: If it cannot answer; names the texts.
    """
    sample = question.sample
    if question.task == RERANK:
        return _ask_scores(model, question)
    if question.task == CLASSIFY:
        return model.labels([*sample.queries, *sample.documents])
    parts: list[Any] = []
    for input_type, texts in (("query", sample.queries), ("document", sample.documents)):
        with _located("queries" if input_type == "query" else "documents"):
            parts.append(_ask_vectors(model, question, texts, input_type, int(checkpoint.model["vocab_size"])))
    kind: Any = KINDS[question.kind]
    if question.kind not in ENCODINGS:
        return cast(Answers, kind(*parts))
    decoded = [decode(part, question.kind, checkpoint, calibration) for part in parts]
    if question.kind in ("int8", "uint8"):
        return Codes(decoded[0], decoded[1], Vectors(*parts))
    return cast(Answers, kind(*decoded))


def _ask_scores(model: Model, question: Question) -> Scores:
    sample = question.sample
    values = np.full((len(sample.queries), len(sample.documents)), np.nan)
    for row, (query, chosen) in enumerate(zip(sample.queries, question.candidates, strict=True)):
        with _located(f"queries[{row}]"):
            values[row, chosen] = model.scores(query, [sample.documents[number] for number in chosen])
    return Scores(values)


def _ask_vectors(model: Model, question: Question, texts: Sequence[str], input_type: str, vocab_size: int) -> Any:
    if question.task == CONTEXT:
        size = CHUNKS if input_type == "document" else 1
        documents = [texts[start : start + size] for start in range(0, len(texts), size)]
        return model.chunks(documents, input_type, question.output)
    if question.kind == "sparse":
        rows = np.zeros((len(texts), vocab_size), dtype=np.float32)
        for row, (ids, weights) in zip(rows, model.sparse(texts, input_type), strict=True):
            row[ids] = weights
        return rows
    if question.kind == "multi":
        return model.multi(texts, input_type)
    return model.dense(texts, input_type, question.output)


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Say of which texts an error is."""
    try:
        yield
    except ConfigError:  # which is of none
        raise
    except LazuliError as error:
        raise type(error)(f"{where}: {error}") from None
