"""How the answers of one request leave through Triton's response sender.

Takes parts of answers, makes responses of them, and sends those once there is room in shared memory. Knows nothing of
what was computed.
"""

import threading
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from lazuli.errors import LazuliError
from lazuli.metrics.recorder import OK, EngineRecorder, outcome_of
from lazuli.request import Part
from lazuli.tracing.request_trace import RequestTrace
from lazuli.triton import protocol
from lazuli.triton.shared_memory import AnswerRoom, no_room

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
# Of each string in a tensor: its length comes before it.
_LENGTH_BYTES = 4


class ResponseSender:
    """Sends the answers of one request through Triton's response sender, or keeps one for `execute()` to return.

    Attributes:
        returned: The response that `execute()` is to return, if any.
        answered: Whether the last response is on its way.
        rows, tokens: Of the request, for the record; 0 until they are known.
        trace: Told how the request ends; None if nobody wants to know.
    """

    def __init__(
        self,
        sender: Any,
        room: AnswerRoom,
        *,
        with_index: bool,
        returning_thread: int | None = None,
        recorder: EngineRecorder | None = None,
        trace: RequestTrace | None = None,
    ) -> None:
        """Wrap a `pb_utils.InferenceResponseSender`.

        Args:
            sender: Triton's.
            room: For responses.
            with_index: Whether responses say which rows they hold.
            returning_thread: What this thread sends is kept; it is the one inside `execute()`, and it sends once.
            recorder: Gets how the request ends, and how long after now.
            trace: Of the request, if it has one.
        """
        self._sender = sender
        self._room = room
        self._with_index = with_index
        self._returning_thread = returning_thread
        self._prepared: tuple[Part | None, Any] = (None, None)
        self.returned: Any = None
        self.answered = False
        self.rows = self.tokens = 0
        self.trace = trace
        self._recorded = (recorder or EngineRecorder(enabled=False)).requests
        self._started = time.monotonic()

    def prepare(self, part: Part) -> None:
        """Make the response to a part. Its tensors look at the part's memory, which is read when they are sent.

        Only strings are read at once, so a part that has some is made when they are there.
        """
        if all(values.dtype != np.object_ for values in part.outputs.values()):
            self._prepared = part, self._make_response(part)

    def send(self, part: Part, *, final: bool) -> None:
        """Send a part."""
        prepared_part, response = self._prepared
        if part is not prepared_part:
            response = self._make_response(part)
        num_bytes = sum(map(_count_bytes, (part.index, part.token_count, *part.outputs.values())))
        with self._room.reserve(num_bytes) as granted:
            if granted:
                self._answer(response, _FINAL if final else 0)
                return
        raise no_room(num_bytes)

    def send_error(self, error: LazuliError | Exception) -> None:
        """Send an error together with the final flag: without it the request would stay in flight for ever."""
        with self._room.reserve(len(str(error))):  # there is nothing else to send, room or not
            self._answer(protocol.make_error(error), _FINAL, error)

    def is_cancelled(self) -> bool:
        """Whether the client has gone, as far as Triton tells: 24.10 does for gRPC calls that no ensemble made.

        A round trip to the server process, without the interpreter's lock. After the last response it would read memory
        that Triton has freed.
        """
        assert not self.answered, "the request has ended"
        return bool(self._sender.is_cancelled())

    def _answer(self, response: Any, flags: int, error: Exception | None = None) -> None:
        self.answered = flags == _FINAL
        self._prepared = (None, None)
        if threading.get_ident() == self._returning_thread:
            self.returned = response
        else:
            self._sender.send(response, flags=flags)
        if flags == _FINAL:
            outcome = OK if error is None else outcome_of(error)
            self._recorded.append((outcome, self.rows, self.tokens, time.monotonic() - self._started))
            if self.trace is not None:
                self.trace.end(self.rows, self.tokens, error)

    def _make_response(self, part: Part) -> Any:
        tensors = {**part.outputs, "token_count": part.token_count[:, None]}
        if self._with_index:
            tensors["index"] = part.index[:, None]
        return protocol.make_response(tensors)


def _count_bytes(values: np.ndarray) -> int:
    if values.dtype != np.object_:
        return values.nbytes
    return sum(len(text) + _LENGTH_BYTES for text in values.ravel())
