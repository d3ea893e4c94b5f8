"""The `tokenizer` model: text in, token ids out, one answer for each request of a call."""

from typing import Any

import numpy as np

from lazuli.config import TokenizerConfig
from lazuli.options import RequestOptions
from lazuli.text_input import decode_texts
from lazuli.tokenizer import TextTokenizer, pad
from lazuli.triton import protocol
from lazuli.triton.answering import AnsweringModel


class TritonPythonModel(AnsweringModel):
    """Triton's interface to `lazuli.tokenizer`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and run it once."""
        protocol.log_to_triton(args)
        config = TokenizerConfig.from_parameters(protocol.read_parameters(args))
        self._tokenizer = TextTokenizer.from_config(config)
        self._tokenizer.tokenize(["warm up"], RequestOptions(truncate="end"))  # the limit may be one token
        self._start(self._tokenizer.threads, args, config.metrics)

    def _compute(self, request: Any) -> dict[str, np.ndarray]:
        options = self._read_options(protocol.read_options(request))
        texts = self._tokenizer.tokenize(decode_texts(protocol.read_tensor(request, "text")), options)
        input_ids, attention_mask = pad(texts)
        truncated = np.array([[text.truncated] for text in texts])
        return {"input_ids": input_ids, "attention_mask": attention_mask, "truncated": truncated}

    def _read_options(self, parameters: str) -> RequestOptions:
        return RequestOptions.from_json(parameters)
