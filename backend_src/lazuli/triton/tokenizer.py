"""The `tokenizer` model: text in, token ids out, one answer for each request of a call."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lazuli.config import TokenizerConfig
from lazuli.options import RequestOptions
from lazuli.tokenizer import TextTokenizer, decode_texts, pad
from lazuli.triton import protocol


class TritonPythonModel:
    """Triton's interface to `lazuli.tokenizer`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and run it once."""
        protocol.log_to_triton()
        self._tokenizer = TextTokenizer.from_config(TokenizerConfig.from_parameters(protocol.read_parameters(args)))
        self._tokenizer.tokenize(["warm up"], RequestOptions())
        self._pool = ThreadPoolExecutor(self._tokenizer.threads, thread_name_prefix="lazuli-request")
        protocol.forget_start()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer all requests at the same time, each by itself: a bad one does not touch the others."""
        if len(requests) == 1 or self._tokenizer.encoder.chars_for_threads is None:  # threads would only get in the way
            return list(map(self._answer, requests))
        return list(self._pool.map(self._answer, requests))

    def _answer(self, request: Any) -> Any:
        try:
            options = RequestOptions.from_json(protocol.read_options(request))
            texts = self._tokenizer.tokenize(decode_texts(protocol.read_tensor(request, "text")), options)
        except Exception as error:  # raising out of execute() would fail the other requests of the call too
            return protocol.make_error(error)
        input_ids, attention_mask = pad(texts)
        truncated = np.array([[text.truncated] for text in texts])
        return protocol.make_response(
            {"input_ids": input_ids, "attention_mask": attention_mask, "truncated": truncated}
        )
