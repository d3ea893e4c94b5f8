"""The `context_tokenizer` models: chunks of documents in, token ids out, one answer for each request of a call."""

from contextlib import suppress
from typing import Any

import numpy as np

from lazuli.context.config import ContextTokenizerConfig
from lazuli.context.options import ContextOptions
from lazuli.context.tokenizer import ContextTokenizer
from lazuli.errors import InputError
from lazuli.text_input import decode_texts
from lazuli.triton import protocol
from lazuli.triton.answering import AnsweringModel


class TritonPythonModel(AnsweringModel):
    """Triton's interface to `lazuli.context.tokenizer`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and run it once."""
        protocol.log_to_triton(args)
        config = ContextTokenizerConfig.from_parameters(protocol.read_parameters(args))
        self._tokenizer = ContextTokenizer.from_config(config)
        with suppress(InputError):  # the limit may be less
            self._tokenizer.tokenize(["warm", "up"], np.zeros((2, 1), dtype=np.int32), ContextOptions())
        self._start(self._tokenizer.threads, args, config.metrics)

    def _compute(self, request: Any) -> dict[str, np.ndarray]:
        options = ContextOptions.from_json(protocol.read_options(request))
        texts, document = decode_texts(protocol.read_tensor(request, "text")), protocol.read_tensor(request, "document")
        input_ids, attention_mask = self._tokenizer.tokenize(texts, document, options)
        # Nothing is ever cut, but clients look for it.
        truncated = np.zeros((len(texts), 1), dtype=np.bool_)
        return {"input_ids": input_ids, "attention_mask": attention_mask, "truncated": truncated}
