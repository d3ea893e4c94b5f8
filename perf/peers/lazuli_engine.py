"""Lazuli's tokenizer and service in process: all that a server has but the server.

Takes rows; returns vectors that are copied out, as a server's reply would be.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import lazuli
from peers.contract import Answer, Peer
from peers.local import LocalEndpoint
from peers.spec import Settings, TargetSpec
from texts.rows import Rows

_NUMBERS = ("threads", "token_budget", "graph_max_tokens")


@contextlib.contextmanager
def open_peer(spec: TargetSpec, settings: Settings) -> Iterator[Peer]:
    """A target of this kind; `dtype`, `device`, `attention` and some numbers of the engine are its options."""
    spec.check_options("dtype", "device", "attention", *_NUMBERS)
    dtype = spec.options.get("dtype", settings.dtype)
    device = spec.options.get("device", settings.device)
    numbers = tuple((name, int(spec.options[name])) for name in _NUMBERS if name in spec.options)
    arguments = (settings.checkpoint, device, dtype, settings.max_seq_length, spec.options.get("attention"), numbers)
    endpoint = LocalEndpoint(LazuliEngine, arguments)
    yield Peer(f"lazuli {lazuli.__version__}", endpoint, None, dtype or "auto", in_process=True, takes_ids=True)


class LazuliEngine:
    """The service with its threads."""

    def __init__(
        self,
        checkpoint: str,
        device: str | None,
        dtype: str | None,
        max_seq_length: int | None,
        attention: str | None,
        numbers: tuple[tuple[str, int], ...],
    ) -> None:
        """Load it and warm it up; `numbers` are fields of the engine's configuration."""
        # Here, so that what this sets in the environment is not inherited by the processes of other targets.
        from lazuli import openmp  # noqa: F401 - before anything that imports torch
        from lazuli.config import EngineConfig, TokenizerConfig
        from lazuli.options import RequestOptions
        from lazuli.service import EmbeddingService
        from lazuli.tokenizer import TextTokenizer

        self._options = RequestOptions()
        self._num_inside = 0  # a client too many or too few is nothing but another road to the same answer
        self._tokenizer = TextTokenizer.from_config(
            TokenizerConfig(checkpoint=checkpoint, max_seq_length=max_seq_length, threads=dict(numbers).get("threads"))
        )
        config = EngineConfig(
            checkpoint=checkpoint, device=device, dtype=dtype, attention=attention, **dict[str, Any](numbers)
        )
        self._service = EmbeddingService(config, streaming=False)

    def embed(self, rows: Rows) -> Answer:
        """One request."""
        from lazuli.tokenizer import pad
        from peers.keeping_waiter import KeepingWaiter

        if rows.ids is None:
            input_ids, mask = pad(self._tokenizer.tokenize(rows.texts, self._options))
        else:
            input_ids, mask = _padded(rows.ids)
        waiter = KeepingWaiter()
        self._num_inside += 1
        # As the server does: a request that is alone is run by the thread that brings it.
        self._service.submit(input_ids, mask, self._options, waiter, may_step=True, may_wait=self._num_inside == 1)
        waiter.wait()
        self._num_inside -= 1
        return Answer(waiter.vectors, int(mask.sum()))

    def close(self) -> None:
        """End the threads."""
        self._service.close()


def _padded(ids: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    width = max(map(len, ids))
    input_ids, mask = np.zeros((len(ids), width), np.int32), np.zeros((len(ids), width), np.int8)
    for row, values in enumerate(ids):
        input_ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    return input_ids, mask
