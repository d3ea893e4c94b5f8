"""The `embedding` and `embedding_stream` models: token ids in, vectors out, answered later from other threads.

One class for both: whether the model's transaction policy is decoupled decides if a request is answered in parts.
"""

import json
from typing import Any

import triton_python_backend_utils as pb_utils

from lazuli import openmp  # noqa: F401 - before anything that imports torch
from lazuli.config import EngineConfig
from lazuli.errors import LazuliError
from lazuli.options import RequestOptions
from lazuli.request import EmbeddingPart
from lazuli.service import EmbeddingService
from lazuli.triton import protocol

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Triton's interface to `lazuli.service`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load and warm up the engine; the model is ready when this returns."""
        protocol.log_to_triton()
        config = EngineConfig.from_parameters(protocol.read_parameters(args))
        model = json.loads(args["model_config"])
        self._streaming = bool(model.get("model_transaction_policy", {}).get("decoupled", False))
        self._max_rows = int(model.get("max_batch_size", 0))
        self._service = EmbeddingService(config, streaming=self._streaming, gpu_index=protocol.read_gpu_index(args))
        protocol.forget_start()

    def execute(self, requests: list[Any]) -> None:
        """Queue each request, then wait for room, which keeps Triton from bringing more to a full engine.

        Where the call is full, more may wait in Triton's queue, which has no limit: then it is not waited for, so that
        all of it gets here and what is too much is refused.
        """
        rows = sum(self._submit(request, may_step=len(requests) == 1) for request in requests)
        if 2 * rows < self._max_rows:
            self._service.wait_for_room()

    def finalize(self) -> None:
        """Answer what is left and stop the threads."""
        self._service.close()

    def _submit(self, request: Any, *, may_step: bool) -> int:
        """Queue one request, or answer it with an error; returns how many rows it has."""
        sender, rows = ResponseSender(request.get_response_sender(), with_index=self._streaming), 0
        try:
            input_ids = protocol.read_tensor(request, "input_ids")
            rows = len(input_ids)
            attention_mask = protocol.read_tensor(request, "attention_mask")
            options = RequestOptions.from_json(request.parameters())
            self._service.submit(input_ids, attention_mask, options, sender, may_step=may_step)
        except Exception as error:  # raising out of execute() would fail the other requests of the call too
            sender.send_error(error)
        return rows


class ResponseSender:
    """Sends the answers of one request through Triton's response sender."""

    def __init__(self, sender: Any, *, with_index: bool) -> None:
        """Wrap a `pb_utils.InferenceResponseSender`."""
        self._sender = sender
        self._with_index = with_index

    def send(self, part: EmbeddingPart, *, final: bool) -> None:
        """Send vectors."""
        tensors = {"embedding": part.embedding, "token_count": part.token_count[:, None]}
        if self._with_index:
            tensors["index"] = part.index[:, None]
        self._sender.send(protocol.make_response(tensors), flags=_FINAL if final else 0)

    def send_error(self, error: LazuliError | Exception) -> None:
        """Send an error together with the final flag: without it the request would stay in flight for ever."""
        self._sender.send(protocol.make_error(error), flags=_FINAL)
