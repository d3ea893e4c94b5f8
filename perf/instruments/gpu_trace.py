"""What torch's profiler sees of a service under load: how busy the GPU was, and what the host did meanwhile.

Takes a service whose load runs already; returns events, figures of them, and a compact Chrome trace. Knows no load.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

from lazuli.batch import RaggedBatch
from lazuli.service import EmbeddingService

# Gaps shorter than this lie between two kernels, not for want of work.
_JOINED_US = 2.0
_KEPT_EVENTS = 20_000
_STEP, _PACK = "lazuli.step", "lazuli.pack"

_Span = tuple[float, float]


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
