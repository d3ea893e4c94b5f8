"""The hot paths of the server that run in Python: from the tensors of a request to the response that is sent.

Returns paths by name. Triton's own module is replaced by the least that does, so what is counted is Lazuli's work.
"""

import sys
import types
from collections.abc import Sequence as SequenceOf
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from guarding.work_counter import HotPaths, Run
from lazuli.batch import RaggedBatch
from lazuli.options import RequestOptions
from lazuli.reply import ReplyPool
from lazuli.request import Request, StreamRequest, UnaryRequest
from lazuli.scheduler import Scheduler
from lazuli.token_input import TokenLimits, split_chunks

if TYPE_CHECKING:  # earlier commits have none
    from lazuli.request import AnswerForm

_DIMENSION = 384
_LIMITS = TokenLimits(vocab_size=30_522, max_positions=512)
_OPTIONS = '{"truncate":"end","input_type":"query","dimensions":256,"normalize":true,"triton_final_response":true}'
# Too long to be kept, so it is parsed each time.
_LONG_OPTIONS = '{"truncate":"end","instruction":"' + "find passages " * 100 + '"}'
_MANY = 64


def server_paths() -> HotPaths:
    """All of them. Those of answers import torch."""
    return {
        "options: seen before": lambda: partial(RequestOptions.from_json, _OPTIONS),
        "options: a long instruction": lambda: partial(RequestOptions.from_json, _LONG_OPTIONS),
        "rows: one text": partial(_prepare_rows, 1),
        "rows: 64 padded texts": partial(_prepare_rows, _MANY),
        "request: of 64 rows": _prepare_request,
        "scheduler: one text": partial(_prepare_scheduler, [1]),
        "scheduler: 64 requests of 1-8 texts": partial(_prepare_scheduler, [1 + i % 8 for i in range(_MANY)]),
        "scheduler: one text that need not queue": _prepare_take_now,
        "pack: one text": partial(_prepare_pack, 1),
        "pack: 64 texts": partial(_prepare_pack, _MANY),
        "reply: one text": partial(_prepare_reply, UnaryRequest, [1]),
        "reply: one request of 64 texts": partial(_prepare_reply, UnaryRequest, [_MANY]),
        "reply: the first of 64 requests": partial(_prepare_reply, UnaryRequest, [1] * _MANY),
        "reply: 64 texts of a stream": partial(_prepare_reply, StreamRequest, [_MANY]),
    }


def _ids(count: int, longest: int = 128) -> list[np.ndarray]:
    """The same rows of ids each time; one of 16 if there is one."""
    lengths = [16] if count == 1 else [8 + (37 * row) % (longest - 8) for row in range(count)]
    return [np.arange(1000, 1000 + length, dtype=np.int32) for length in lengths]


def _prepare_rows(count: int) -> Run:
    rows = _ids(count)
    ids = np.zeros((count, max(map(len, rows))), dtype=np.int32)
    mask = np.zeros(ids.shape, dtype=np.int8)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = row, 1
    return partial(split_chunks, ids, mask, _LIMITS)


def _prepare_request() -> Run:
    rows, form, sender = _ids(_MANY), _form(), _sender()
    return lambda: UnaryRequest(rows, form, sender)


def _prepare_scheduler(sizes: SequenceOf[int]) -> Run:
    scheduler = _scheduler()
    requests = [_request(UnaryRequest, size) for size in sizes]

    def run() -> None:
        for request in requests:
            scheduler.submit(request)
            scheduler.wait_for_room()
        while scheduler.queued_tokens:
            scheduler.next_batch()

    return run


def _prepare_take_now() -> Run:
    return partial(_scheduler().take_now, _request(UnaryRequest, 1))


def _prepare_pack(count: int) -> Run:
    return partial(RaggedBatch.pack, _ids(count), [1] * count)


def _prepare_reply(kind: type[Request], sizes: SequenceOf[int]) -> Run:
    """What the thread that waited for a batch does; others would deliver to all requests but the first."""
    sequences = [sequence for size in sizes for sequence in _request(kind, size).sequences]
    vectors = np.ones((len(sequences), _DIMENSION), dtype=np.float32)
    # Without threads, what is left to them stays in the queue, and so is counted nowhere.
    return partial(ReplyPool(0).receive, _Arrived(vectors), sequences, lambda: None)


def _scheduler() -> Scheduler:
    return Scheduler(token_budget=4096, max_sequences=256, max_queued_tokens=1 << 20, max_waiting_tokens=1 << 22)


def _request(kind: type[Request], size: int) -> Request:
    return kind(_ids(size), _form(), _sender())


class _Arrived:
    """The vectors of a batch that are there already."""

    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors = vectors

    def result(self) -> np.ndarray:
        """The vectors."""
        return self._vectors


@cache
def _form() -> "AnswerForm":
    # Here, as importing them takes torch, which not every path needs.
    from lazuli.outputs.dense import DenseForm
    from lazuli.outputs.finish import Finish

    return DenseForm(Finish(normalize=True), _DIMENSION, packed=False)


def _sender() -> Any:
    _replace_triton()
    from lazuli.triton.response_sender import ResponseSender
    from lazuli.triton.shared_memory import AnswerRoom

    return ResponseSender(_TritonSender(), AnswerRoom(None), with_index=True)


class _TritonSender:
    def send(self, response: object, flags: int = 0) -> None:
        """Take it."""


class _Value:
    """A tensor or a response of Triton's, which here is not looked at."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts


@cache
def _replace_triton() -> None:
    module = types.ModuleType("triton_python_backend_utils")
    vars(module).update(Tensor=_Value, InferenceResponse=_Value, TRITONSERVER_RESPONSE_COMPLETE_FINAL=1)
    sys.modules.setdefault(module.__name__, module)
