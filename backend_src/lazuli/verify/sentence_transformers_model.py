"""`sentence-transformers` in float32 on the CPU: its four kinds of models.

Takes a checkpoint, answers as `model.Model` has it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.heads.task import has_module
from lazuli.verify.model import Model, Sparse
from lazuli.verify.reading import Reading


class SentenceTransformersModel(Model):
    """A model of vectors, of single tokens too, or of scores."""

    name = "sentence-transformers"

    def __init__(self, checkpoint: Checkpoint, reading: Reading) -> None:
        """Nothing is loaded before it is known what for."""
        self._checkpoint = checkpoint
        self._reading = reading
        self._loaded: dict[str, Any] = {}

    def dense(self, texts: Sequence[str], input_type: str, encoding: str = "float32") -> np.ndarray:
        """See `Model`."""
        encoder = self._encoder("SentenceTransformer")
        vectors: np.ndarray = encoder.encode(
            list(texts), prompt=self._reading.prompts[input_type], show_progress_bar=False
        )
        return vectors

    def sparse(self, texts: Sequence[str], input_type: str) -> list[Sparse]:
        """See `Model`; of SPLADE only."""
        if not has_module(self._checkpoint, "SpladePooling"):
            self._refuse("sparse vectors")
        rows = self._encode("SparseEncoder", texts, input_type, convert_to_tensor=False, convert_to_sparse_tensor=False)
        dense = [np.asarray(row) for row in rows]
        return [(np.flatnonzero(row), row[np.flatnonzero(row)]) for row in dense]

    def multi(self, texts: Sequence[str], input_type: str) -> list[np.ndarray]:
        """See `Model`; of late interaction only."""
        if not self._checkpoint.late_interaction:
            self._refuse("vectors of tokens")
        return [np.asarray(row) for row in self._encode("MultiVectorEncoder", texts, input_type)]

    def scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """See `Model`."""
        import torch

        if self._checkpoint.architecture.endswith("ForCausalLM") and not has_module(self._checkpoint, "LogitScore"):
            raise ConfigError(
                "reference: sentence-transformers cannot tell how this language model scores; pass transformers"
            )
        pairs = [(query, document) for document in documents]
        scores: np.ndarray = self._encoder("CrossEncoder").predict(
            pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        return scores

    def _encoder(self, kind: str) -> Any:
        import sentence_transformers
        from transformers.utils import logging as transformers_logging

        quiet: Any = transformers_logging
        quiet.disable_progress_bar()
        if not hasattr(sentence_transformers, kind):
            version = sentence_transformers.__version__
            raise ConfigError(f"reference: sentence-transformers {version} has no {kind}; install a newer one")
        if kind not in self._loaded:
            path = self._checkpoint.path
            try:
                self._loaded[kind] = getattr(sentence_transformers, kind)(str(path), device="cpu")
            except (OSError, ValueError, KeyError) as error:
                raise ConfigError(f"{path}: sentence-transformers cannot load it ({error})") from None
            self._loaded[kind].max_seq_length = self._reading.max_seq_length
        return self._loaded[kind]

    def _encode(self, kind: str, texts: Sequence[str], input_type: str, **options: Any) -> Any:
        encoder = self._encoder(kind)
        encode = encoder.encode_query if input_type == "query" else encoder.encode_document
        return encode(list(texts), show_progress_bar=False, **options)
