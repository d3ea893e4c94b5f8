"""The engine alone: from packed ids to vectors in host memory.

    .venv/bin/python perf/bench_engine.py --machine h200 --device cuda --checkpoint /tmp/qwen3 --name engine_qwen3

Random ids, warmed up until every size is replayed. Suites: `latency` (one text), `scoring` (several of 512 tokens), and
`throughput` (four clients that each keep asking for 100 texts; scheduler and reply threads included).
"""

import argparse
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

import lazuli
from lazuli.batch import RaggedBatch
from lazuli.config import DEFAULT_CHECKPOINT, EngineConfig
from lazuli.engine import Engine
from lazuli.errors import LazuliError
from lazuli.options import RequestOptions
from lazuli.request import EmbeddingPart
from lazuli.service import EmbeddingService
from measurement import Measurement, write

_WARM_UP = 5  # eager, capture, and some replays
_CLIENTS = 4
_TEXTS_A_CLIENT = 100


class _Waiter:
    """A sender that a client waits on."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: LazuliError | None = None

    def send(self, part: EmbeddingPart, *, final: bool) -> None:
        self._done.set()

    def send_error(self, error: LazuliError) -> None:
        self._error = error
        self._done.set()

    def wait(self) -> None:
        self._done.wait()
        if self._error is not None:
            raise self._error


def measure_batches(engine: Engine, length: int, batch: int, repeats: int) -> list[float]:
    """Time of each pass in ms, from ids to vectors in host memory, on fresh ids each time."""
    rng = np.random.default_rng(length * 1000 + batch)
    samples = []
    for repeat in range(-_WARM_UP, repeats):
        rows = list(rng.integers(engine.limits.vocab_size, size=(batch, length), dtype=np.int32))
        start = time.perf_counter()
        engine.step(RaggedBatch.pack(rows, [True] * batch)).result()
        if repeat >= 0:
            samples.append((time.perf_counter() - start) * 1e3)
        else:
            engine.use_idle_time(quiet=True)
    return samples


def measure_clients(service: EmbeddingService, length: int, rounds: int) -> tuple[list[float], float]:
    """Time of each request in ms, and of all together in s."""

    def client(number: int) -> list[float]:
        rng = np.random.default_rng(number)
        samples = []
        for _ in range(rounds):
            ids = rng.integers(service.engine.limits.vocab_size, size=(_TEXTS_A_CLIENT, length), dtype=np.int32)
            waiter, start = _Waiter(), time.perf_counter()
            service.submit(ids, np.ones_like(ids, dtype=np.int8), RequestOptions(), waiter)
            waiter.wait()
            samples.append((time.perf_counter() - start) * 1e3)
        return samples

    start = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as clients:
        samples = [sample for part in clients.map(client, range(_CLIENTS)) for sample in part]
    return samples, time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suites."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--name", default="engine", help="file there")
    parser.add_argument("--checkpoint", default=DEFAULT_CHECKPOINT)
    parser.add_argument("--model", help="what to call the checkpoint")
    parser.add_argument("--device")
    parser.add_argument("--dtype")
    parser.add_argument("--attention", help="a backend by name; by default the quickest for each batch")
    parser.add_argument("--len", type=int, nargs="*", default=[16, 128, 512, 4096], help="of one text")
    parser.add_argument("--batch", type=int, nargs="*", default=[5, 25, 50], help="texts of 512 tokens")
    parser.add_argument("--throughput", type=int, nargs="*", default=[512, 4096], help="tokens of each text")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5, help="requests of each client")
    options = parser.parse_args(arguments)

    config = EngineConfig(
        checkpoint=options.checkpoint, device=options.device, dtype=options.dtype, attention=options.attention
    )
    # A request of 50 texts is one batch in the scoring suite, as it is for the systems compared with.
    service = EmbeddingService(replace(config, token_budget=50 * 512), streaming=False)
    while service.engine.use_idle_time(quiet=True):  # as a server has done after some seconds
        pass
    limit = service.engine.limits.max_positions
    common = (f"lazuli {lazuli.__version__}", "engine")
    model = (options.model or options.checkpoint, options.dtype or "auto")
    measurements = []

    def note(suite: str, samples: list[float], **fields: object) -> None:
        attention = options.attention or "auto"
        line = Measurement(*common, suite, *model, samples, attention=attention, **fields)  # type: ignore[arg-type]
        measurements.append(line)
        print(line.summary(), flush=True)

    for length in (length for length in options.len if length <= limit):
        samples = measure_batches(service.engine, length, 1, options.repeats)
        note("latency", samples, len=length, batch=1, texts=1, tokens=length)
    for batch in options.batch if limit >= 512 else []:
        samples = measure_batches(service.engine, 512, batch, max(options.repeats // 4, 5))
        note("scoring", samples, len=512, batch=batch, texts=batch, tokens=512 * batch)
    for length in (length for length in options.throughput if length <= limit):
        measure_clients(service, length, 2)
        samples, wall_s = measure_clients(service, length, options.rounds)
        counts = {"batch": _TEXTS_A_CLIENT, "texts": _TEXTS_A_CLIENT, "tokens": _TEXTS_A_CLIENT * length}
        note("throughput", samples, len=length, concurrency=_CLIENTS, wall_s=wall_s, **counts)
    print(service.engine.graph_counters)
    service.close()
    print(write(options.machine, options.name, measurements))


if __name__ == "__main__":
    main()
