"""Whether the host prepares batch N + 1 while the GPU computes batch N, and how long the GPU idles at full load.

    .venv/bin/python perf/bench_overlap.py --machine h200 --device cuda --checkpoint /tmp/qwen3 --name overlap_qwen3

Two loads on a whole service, each recorded by torch's profiler for a while: four clients that keep asking for 100 texts
of 512 tokens, and 32 clients that keep asking for one query. Writes figures, and a compact Chrome trace of some batches
(open it at https://ui.perfetto.dev): kernels of a batch are joined, host work is marked by the runner's steps.
"""

import argparse
import json
import lzma
import queue
import threading
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np

import lazuli
from instruments.gpu_trace import analyse, compact, record
from lazuli.config import EngineConfig
from lazuli.errors import LazuliError
from lazuli.options import RequestOptions
from lazuli.request import Part
from lazuli.service import EmbeddingService
from reporting.measurement import RESULTS, Measurement, write

_WARM_UP_S = 3.0
_RECORDED_S = {"documents": 1.5, "queries": 0.25}
_DISTINCT = 64  # requests, asked again and again


class _Sender:
    """Where the answer to one request goes."""

    def __init__(self, answered: "queue.SimpleQueue[tuple[_Sender, Exception | None]]", lengths: list[int]) -> None:
        """Report to a queue."""
        self._answered = answered
        self.lengths = lengths
        self.start = time.perf_counter()

    def prepare(self, part: Part) -> None:
        """Nothing to get ready."""

    def send(self, part: Part, *, final: bool) -> None:
        """An answer of one part; the vectors are thrown away."""
        self._answered.put((self, None))

    def send_error(self, error: LazuliError | Exception) -> None:
        """An error in its place."""
        self._answered.put((self, error))

    def is_cancelled(self) -> bool:
        """Never."""
        return False


class _Load:
    """Clients that each wait for an answer and ask again: one thread for all of them.

    A thread for each would keep the interpreter from the engine's own, as clients of a server do not.
    """

    def __init__(self, service: EmbeddingService, clients: int, make_lengths: Callable[[Any], list[int]]) -> None:
        self._service = service
        self._clients = clients
        self._answered: queue.SimpleQueue[tuple[_Sender, Exception | None]] = queue.SimpleQueue()
        self._stopped = False
        self.samples_ms: list[float] = []
        self.texts = self.tokens = 0
        rng = np.random.default_rng(0)
        self._requests = cycle([self._make_request(make_lengths(rng), rng) for _ in range(_DISTINCT)])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def reset(self) -> None:
        """Count from now on."""
        self.samples_ms = []
        self.texts = self.tokens = 0

    def stop(self) -> None:
        """Let the clients finish."""
        self._stopped = True
        self._thread.join()

    def _make_request(self, lengths: list[int], rng: Any) -> tuple[np.ndarray, np.ndarray, list[int]]:
        mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
        ids = rng.integers(self._service.engine.limits.vocab_size, size=mask.shape, dtype=np.int32)
        return ids, mask.astype(np.int8), lengths

    def _run(self) -> None:
        for _ in range(self._clients):
            self._ask()
        waiting = self._clients
        while waiting:
            sender, error = self._answered.get()
            if error is not None:
                raise error
            self.samples_ms.append((time.perf_counter() - sender.start) * 1e3)
            self.texts += len(sender.lengths)
            self.tokens += sum(sender.lengths)
            if self._stopped:
                waiting -= 1
            else:
                self._ask()

    def _ask(self) -> None:
        ids, mask, lengths = next(self._requests)
        self._service.submit(ids, mask, RequestOptions(), _Sender(self._answered, lengths))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both loads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--name", default="overlap", help="files there")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--checkpoint", default="all-MiniLM-L6-v2")
    parser.add_argument("--model", help="what to call the checkpoint")
    parser.add_argument("--dtype")
    parser.add_argument("--cache-dir")
    options = parser.parse_args(arguments)
    config = EngineConfig(
        checkpoint=options.checkpoint, device=options.device, dtype=options.dtype, cache_dir=options.cache_dir
    )
    service = EmbeddingService(config, streaming=False)
    loads: dict[str, tuple[int, Callable[[Any], list[int]]]] = {
        "documents": (4, lambda rng: [512] * 100),
        "queries": (32, lambda rng: [int(rng.integers(4, 33))]),
    }
    measurements = []
    for name, (clients, make_lengths) in loads.items():
        load = _Load(service, clients, make_lengths)
        time.sleep(_WARM_UP_S)
        load.reset()
        start = time.perf_counter()
        time.sleep(_WARM_UP_S)
        samples, texts, tokens, wall_s = load.samples_ms, load.texts, load.tokens, time.perf_counter() - start
        folder = RESULTS / options.machine
        folder.mkdir(parents=True, exist_ok=True)
        events = record(service, _RECORDED_S[name], folder / "trace.json")
        load.stop()
        trace = folder / f"{options.name}-{name}.trace.json.xz"
        trace.write_bytes(lzma.compress(json.dumps({"traceEvents": compact(events)}).encode()))
        model = (options.model or options.checkpoint, options.dtype or "auto")
        line = Measurement(f"lazuli {lazuli.__version__}", "engine", f"overlap-{name}", *model, samples or [0.0])
        line.concurrency, line.wall_s = clients, wall_s
        line.texts = round(texts / max(1, len(samples)))
        line.tokens = round(tokens / max(1, len(samples)))
        line.extra = analyse(events) | {"trace_kb": trace.stat().st_size / 1024}
        line.note = (
            f"under the profiler: GPU idle {line.extra['gpu_idle_percent']:.1f} %, "
            f"{line.extra['host_work_while_gpu_busy_percent']:.0f} % of the host's work while it computes"
        )
        measurements.append(line)
        write(options.machine, options.name, measurements)
        print(line.summary(), {key: round(value, 2) for key, value in line.extra.items()}, flush=True)
    print(service.engine.graph_counters)
    service.close()


if __name__ == "__main__":
    main()
