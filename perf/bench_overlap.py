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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

import lazuli
from lazuli.batch import RaggedBatch
from lazuli.config import EngineConfig
from lazuli.errors import LazuliError
from lazuli.options import RequestOptions
from lazuli.request import Part
from lazuli.service import EmbeddingService
from measurement import RESULTS, Measurement, write

_WARM_UP_S = 3.0
_RECORDED_S = {"documents": 1.5, "queries": 0.25}
# Gaps shorter than this lie between two kernels, not for want of work.
_JOINED_US = 2.0
_KEPT_EVENTS = 20_000
_DISTINCT = 64  # requests, asked again and again
_STEP, _PACK = "lazuli.step", "lazuli.pack"

_Span = tuple[float, float]


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


@contextmanager
def marked_steps(service: EmbeddingService) -> Iterator[None]:
    """Name packing and stepping in the trace."""
    step, pack = service.engine.step, RaggedBatch.pack

    def marked_step(batch: RaggedBatch) -> Any:
        with record_function(_STEP):
            return step(batch)

    def marked_pack(*arguments: Any) -> RaggedBatch:
        with record_function(_PACK):
            return pack(*arguments)

    service.engine.step = marked_step  # type: ignore[method-assign]
    RaggedBatch.pack = marked_pack  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        service.engine.step = step  # type: ignore[method-assign]
        RaggedBatch.pack = pack  # type: ignore[method-assign]


def record(service: EmbeddingService, seconds: float, path: Path) -> list[dict[str, Any]]:
    """Trace events of a running load."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if service.engine.device.type == "cuda" else [])]
    # The marks are made by the runner's thread, the profiler is started by this one.
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with marked_steps(service), profile(activities=activities, experimental_config=every_thread) as profiler:
        time.sleep(seconds)
    profiler.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    path.unlink()
    return [event for event in events if event.get("ph") == "X"]


def analyse(events: list[dict[str, Any]]) -> dict[str, float]:
    """How busy the GPU was, and what of the host's work fell into that time."""
    device = _join(_spans(events, lambda event: event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")))
    kernels = _join(_spans(events, lambda event: event.get("cat") == "kernel"))
    if not kernels:
        raise SystemExit("the profiler saw no kernels")
    first, last = kernels[0][0], kernels[-1][1]
    steps = _spans(events, lambda event: event.get("name") == _STEP and event.get("cat") == "user_annotation")
    packs = _spans(events, lambda event: event.get("name") == _PACK and event.get("cat") == "user_annotation")
    host = [span for span in steps + packs if span[0] >= first and span[1] <= last]
    total = sum(end - start for start, end in host)
    starts, ends = np.array(device).T
    inside = sum(np.maximum(0.0, np.minimum(ends, end) - np.maximum(starts, start)).sum() for start, end in host)
    gaps = np.array([after[0] - before[1] for before, after in pairwise(kernels)] or [0.0])
    return {
        "gpu_idle_percent": 100 * (1 - sum(end - start for start, end in device) / (last - first)),
        "longest_gap_us": float(gaps.max()),
        "gaps_over_50_us": float((gaps > 50).sum()),
        "steps": float(len(steps)),
        "host_ms_a_step": total / 1e3 / max(1, len(steps)),
        "host_work_while_gpu_busy_percent": float(100 * inside / total) if total else 0.0,
    }


def compact(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spans of the host's marks and of the device's work, kernels in a row joined, from the middle on."""
    rows = [
        (_spans(events, lambda event: event.get("name") == _PACK and event.get("cat") == "user_annotation"), "pack", 1),
        (_spans(events, lambda event: event.get("name") == _STEP and event.get("cat") == "user_annotation"), "step", 1),
        (_join(_spans(events, lambda event: event.get("cat") == "kernel")), "kernels", 2),
        (_spans(events, lambda event: event.get("cat") in ("gpu_memcpy", "gpu_memset")), "copy", 3),
    ]
    spans = sorted((span, name, row) for all_spans, name, row in rows for span in all_spans)
    middle = spans[len(spans) // 2 :][:_KEPT_EVENTS]
    base = middle[0][0][0] if middle else 0.0
    threads = {1: "host: runner", 2: "GPU: kernels", 3: "GPU: copies"}
    names = [
        {"ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": {"name": name}}
        for row, name in threads.items()
    ]
    return names + [
        {"ph": "X", "pid": 1, "tid": row, "name": name, "ts": round(start - base, 1), "dur": round(end - start, 1)}
        for (start, end), name, row in middle
    ]


def _spans(events: list[dict[str, Any]], chosen: Callable[[dict[str, Any]], bool]) -> list[_Span]:
    return sorted((event["ts"], event["ts"] + event.get("dur", 0)) for event in events if chosen(event))


def _join(spans: list[_Span]) -> list[_Span]:
    """Spans with hardly anything between them become one."""
    joined: list[_Span] = []
    for start, end in spans:
        if joined and start - joined[-1][1] <= _JOINED_US:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


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
