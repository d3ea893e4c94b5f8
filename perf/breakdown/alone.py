"""The engine, the service around it and the tokenizer, each alone in a process of its own, without Triton.

Takes the checkpoint and lengths; returns the time of each call on one text. What the server adds is counted from these.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from clients.waiter import Waiter

_WARM_UP = 20
Samples = list[float]


@dataclass(frozen=True)
class Alone:
    """Milliseconds of every call, by the length of the text.

    Attributes:
        engine: Packed ids to vectors in host memory.
        service: The same through scheduler, runner and reply threads.
        tokenizer: Text to padded ids.
    """

    engine: dict[int, Samples]
    service: dict[int, Samples]
    tokenizer: dict[int, Samples]


def measure_alone(
    checkpoint: str, device: str | None, dtype: str | None, texts: dict[int, list[str]], repeats: int
) -> Alone:
    """Measure in a process that ends before this returns, so that a server finds the device free.

    Args:
        checkpoint: As for the server.
        device: Likewise.
        dtype: Likewise.
        texts: Some texts of each length, used in turn.
        repeats: Calls of each.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_measure, checkpoint, device, dtype, texts, repeats).result()


def timed(call: Callable[[int], object], repeats: int) -> Samples:
    """Time of each call in ms, some warm-up calls before them; the calls are numbered."""
    samples = []
    for number in range(-_WARM_UP, repeats):
        start = time.perf_counter()
        call(number)
        if number >= 0:
            samples.append((time.perf_counter() - start) * 1e3)
    return samples


def _measure(
    checkpoint: str, device: str | None, dtype: str | None, texts: dict[int, list[str]], repeats: int
) -> Alone:
    # Here, as torch is of no use to the process that asks.
    from lazuli import openmp  # noqa: F401 - before anything that imports torch
    from lazuli.config import EngineConfig, TokenizerConfig
    from lazuli.options import RequestOptions
    from lazuli.service import EmbeddingService
    from lazuli.tokenizer import TextTokenizer, pad

    options = RequestOptions()
    tokenizer = TextTokenizer.from_config(TokenizerConfig(checkpoint=checkpoint, max_seq_length=max(texts)))
    service = EmbeddingService(EngineConfig(checkpoint=checkpoint, device=device, dtype=dtype), streaming=False)
    alone = Alone({}, {}, {})
    for length, pool in texts.items():
        rows = [pad(tokenizer.tokenize([text], options)) for text in pool]

        def ask_engine(number: int, rows: Sequence[tuple[np.ndarray, np.ndarray]] = rows) -> None:
            service.engine.embed_ids([rows[number % len(rows)][0][0]])

        def ask_service(number: int, rows: Sequence[tuple[np.ndarray, np.ndarray]] = rows) -> None:
            waiter = Waiter()
            service.submit(*rows[number % len(rows)], options, waiter, may_step=True)
            waiter.wait()

        def tokenize(number: int, pool: Sequence[str] = pool) -> None:
            pad(tokenizer.tokenize([pool[number % len(pool)]], options))

        alone.engine[length] = timed(ask_engine, repeats)
        alone.service[length] = timed(ask_service, repeats)
        alone.tokenizer[length] = timed(tokenize, repeats)
    service.close()
    return alone
