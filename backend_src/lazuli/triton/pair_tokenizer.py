"""The `rerank_tokenizer` model: queries and documents in, token ids of pairs out, one answer for each request."""

from typing import Any

import numpy as np

from lazuli.pairs.config import PairTokenizerConfig
from lazuli.pairs.tokenizer import load_pair_tokenizer, pad_pairs
from lazuli.scoring.options import RerankOptions
from lazuli.text_input import decode_texts
from lazuli.triton import protocol
from lazuli.triton.answering import AnsweringModel


class TritonPythonModel(AnsweringModel):
    """Triton's interface to `lazuli.pairs.tokenizer`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and run it once."""
        protocol.log_to_triton(args)
        config = PairTokenizerConfig.from_parameters(protocol.read_parameters(args))
        self._tokenizer = load_pair_tokenizer(config)
        self._tokenizer.tokenize(["warm"], ["up"], RerankOptions())
        self._start(self._tokenizer.threads, args, config.metrics)

    def _compute(self, request: Any) -> dict[str, np.ndarray]:
        options = RerankOptions.from_json(protocol.read_options(request))
        queries, documents = (decode_texts(protocol.read_tensor(request, name), name) for name in ("query", "document"))
        pairs = self._tokenizer.tokenize(queries, documents, options)
        return {**pad_pairs(pairs), "truncated": np.array([[pair.truncated] for pair in pairs])}
