"""The `embedding` and `embedding_stream` models: token ids in, vectors out.

Answers come later, from other threads; only that of a lone request is returned by `execute()`, which is sooner. One
class for both: whether the model's transaction policy is decoupled decides if a request is answered in parts.
"""

import json
import threading
import time
from typing import Any

import triton_python_backend_utils as pb_utils

from lazuli import openmp  # noqa: F401 - before anything that imports torch
from lazuli.config import EngineConfig
from lazuli.errors import LazuliError, ReplyError
from lazuli.options import RequestOptions
from lazuli.request import EmbeddingPart
from lazuli.service import EmbeddingService
from lazuli.triton import protocol
from lazuli.triton.shared_memory import AnswerRoom, find_pool

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
# A request that comes sooner after an answer than a client can ask again was waiting for it.
_TURNAROUND_S = 0.0003
# So long after requests overlapped, others are likely to.
_COMPANY_S = 0.1


class TritonPythonModel:
    """Triton's interface to `lazuli.service`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load and warm up the engine; the model is ready when this returns."""
        protocol.log_to_triton()
        config = EngineConfig.from_parameters(protocol.read_parameters(args))
        model = json.loads(args["model_config"])
        self._streaming = bool(model.get("model_transaction_policy", {}).get("decoupled", False))
        self._max_rows = int(model.get("max_batch_size", 0))
        self._room = AnswerRoom(find_pool())
        self._last_sender: ResponseSender | None = None
        self._returned_at = self._overlapped_at = float("-inf")
        self._service = EmbeddingService(config, streaming=self._streaming, gpu_index=protocol.read_gpu_index(args))
        protocol.forget_start()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer a request that comes alone, or queue each, then wait for room.

        To wait keeps Triton from bringing more to a full engine. Where the call is full, more may wait in Triton's
        queue, which has no limit: then it is not waited for, so that all of it gets here and what is too much is
        refused.

        Returns:
            The response of a request that this thread ran, which so has one thread less to wake up on its way; None
            if answers come later.
        """
        self._note_overlap(len(requests))
        if len(requests) == 1:
            return self._execute_alone(requests[0])
        self._wait_for_room(sum(self._submit(request, self._make_sender(request)) for request in requests))
        return None

    def finalize(self) -> None:
        """Answer what is left and stop the threads."""
        self._service.close()

    def _note_overlap(self, num_requests: int) -> None:
        now = time.monotonic()
        unanswered = self._last_sender is not None and not self._last_sender.answered
        if num_requests > 1 or unanswered or now - self._returned_at < _TURNAROUND_S:
            self._overlapped_at = now

    def _execute_alone(self, request: Any) -> list[Any] | None:
        """Run or queue one request.

        While this thread waits for vectors, others would wait in Triton's queue instead of getting ready beside the
        device, so it only waits where requests do not overlap.
        """
        may_wait = not self._streaming and time.monotonic() - self._overlapped_at > _COMPANY_S
        self._last_sender = sender = self._make_sender(request, returning=not self._streaming)
        rows = self._submit(request, sender, may_step=True, may_wait=may_wait)
        if sender.returned is None:
            self._wait_for_room(rows)
            return None
        self._returned_at = time.monotonic()
        response, sender.returned = sender.returned, None  # it holds shared memory, and the sender stays
        return [response]

    def _wait_for_room(self, rows: int) -> None:
        if 2 * rows < self._max_rows:
            self._service.wait_for_room()

    def _make_sender(self, request: Any, *, returning: bool = False) -> "ResponseSender":
        thread = threading.get_ident() if returning else None
        sender = request.get_response_sender()
        return ResponseSender(sender, self._room, with_index=self._streaming, returning_thread=thread)

    def _submit(self, request: Any, sender: "ResponseSender", *, may_step: bool = False, may_wait: bool = False) -> int:
        """Queue one request, or answer it with an error; returns how many rows it has."""
        rows = 0
        try:
            input_ids = protocol.read_tensor(request, "input_ids")
            rows = len(input_ids)
            attention_mask = protocol.read_tensor(request, "attention_mask")
            options = RequestOptions.from_json(protocol.read_options(request))
            self._service.submit(input_ids, attention_mask, options, sender, may_step=may_step, may_wait=may_wait)
        except Exception as error:  # raising out of execute() would fail the other requests of the call too
            sender.send_error(error)
        return rows


class ResponseSender:
    """Sends the answers of one request through Triton's response sender, or keeps one for `execute()` to return.

    Attributes:
        returned: The response that `execute()` is to return, if any.
        answered: Whether the last response is on its way.
    """

    def __init__(self, sender: Any, room: AnswerRoom, *, with_index: bool, returning_thread: int | None = None) -> None:
        """Wrap a `pb_utils.InferenceResponseSender`.

        Args:
            sender: Triton's.
            room: For responses.
            with_index: Whether responses say which rows they hold.
            returning_thread: What this thread sends is kept; it is the one inside `execute()`, and it sends once.
        """
        self._sender = sender
        self._room = room
        self._with_index = with_index
        self._returning_thread = returning_thread
        self._prepared: tuple[EmbeddingPart | None, Any] = (None, None)
        self.returned: Any = None
        self.answered = False

    def prepare(self, part: EmbeddingPart) -> None:
        """Make the response to a part. Its tensors look at the part's memory, which is read when they are sent."""
        self._prepared = part, self._make_response(part)

    def send(self, part: EmbeddingPart, *, final: bool) -> None:
        """Send vectors."""
        prepared_part, response = self._prepared
        if part is not prepared_part:
            response = self._make_response(part)
        num_bytes = part.embedding.nbytes + part.token_count.nbytes + part.index.nbytes
        with self._room.reserve(num_bytes) as granted:
            if granted:
                self._answer(response, _FINAL if final else 0)
                return
        raise ReplyError(f"shared memory is full: no room for {num_bytes} bytes in time")

    def send_error(self, error: LazuliError | Exception) -> None:
        """Send an error together with the final flag: without it the request would stay in flight for ever."""
        with self._room.reserve(len(str(error))):  # there is nothing else to send, room or not
            self._answer(protocol.make_error(error), _FINAL)

    def _answer(self, response: Any, flags: int) -> None:
        self.answered = flags == _FINAL
        self._prepared = (None, None)
        if threading.get_ident() == self._returning_thread:
            self.returned = response
        else:
            self._sender.send(response, flags=flags)

    def _make_response(self, part: EmbeddingPart) -> Any:
        tensors = {"embedding": part.embedding, "token_count": part.token_count[:, None]}
        if self._with_index:
            tensors["index"] = part.index[:, None]
        return protocol.make_response(tensors)
