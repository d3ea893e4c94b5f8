"""Which tiles of our attention kernel are quickest on this GPU, for each shape, length and number of sequences.

    python perf/tune_attention.py --output $OUT/tune_attention.json [--filter 16/8x128]

Compiles all candidates in parallel first, then times each inside a CUDA graph of many calls, and compares its result
with torch's. Prints a table with the best three of each case in microseconds a call; writes all as JSON.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.attention.torch_varlen import TorchVarlenAttention
from lazuli.attention.triton_ragged import TileConfig, attend, choose_config
from lazuli.triton_kernels.layout import search_width

_Shape = tuple[int, int, int]  # query heads, key heads, head_dim
QWEN3, XLM_ROBERTA, MINILM = (16, 8, 128), (16, 16, 64), (12, 12, 32)
MIXED = (17, 300, 45, 900, 64, 8)
LENGTHS: tuple[tuple[int, ...], ...] = (
    (16,), (32,), (64,), (128,), (256,), (512,), (1024,), (4096,), (16,) * 8, (16,) * 64, (128,) * 8, (128,) * 64,
    (512,) * 5, (512,) * 25, MIXED,
)  # fmt: skip
# Batches in the buckets of graphs that they come to: lengths, and sequences with the empty ones behind the last.
PADDED: tuple[tuple[tuple[int, ...], int], ...] = (
    ((256,) * 2, 64), ((16,) * 32, 64), ((128,) * 25, 448), ((8,) * 440, 448), ((30,) * 110, 448), ((512,) * 8, 16),
    ((4096,), 16),
)  # fmt: skip
_CALLS, _REPLAYS = 40, 7


@dataclass(frozen=True)
class Case:
    """What is timed: a model's attention on sequences of these lengths."""

    shape: _Shape
    lengths: tuple[int, ...]
    causal: bool = False
    num_empty: int = 0

    @property
    def bound(self) -> int:
        """Of the longest sequence, as a bucket has it."""
        return sum(self.lengths) if self.num_empty else max(self.lengths)

    @property
    def chosen(self) -> TileConfig:
        """What the backend takes."""
        num_sequences = len(self.lengths) + self.num_empty
        return choose_config((sum(self.lengths), self.shape[0], self.shape[2]), num_sequences, self.bound)

    @property
    def width(self) -> int:
        """That kernels are compiled for."""
        return search_width(len(self.lengths) + self.num_empty)

    def __str__(self) -> str:
        heads = f"{self.shape[0]}/{self.shape[1]}x{self.shape[2]}"
        same = len(set(self.lengths)) == 1
        lengths = f"{len(self.lengths)}x{self.lengths[0]}" if same else ",".join(map(str, self.lengths))
        empty = f"+{self.num_empty}x0" if self.num_empty else ""
        return f"{heads} {lengths}{empty}{' causal' if self.causal else ''}"

    def tensors(self) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Queries, keys and values as views of one product, and where sequences start."""
        num_heads, num_kv_heads, head_dim = self.shape
        rows = (sum(self.lengths), num_heads + 2 * num_kv_heads, head_dim)
        generator = torch.Generator("cuda").manual_seed(0)
        joined = torch.randn(rows, device="cuda", dtype=torch.bfloat16, generator=generator)
        starts = torch.tensor([0, *accumulate(self.lengths + (0,) * self.num_empty)], device="cuda", dtype=torch.int32)
        return joined.split((num_heads, num_kv_heads, num_kv_heads), dim=1), starts


def candidates(case: Case) -> list[TileConfig]:
    """What may be quickest."""
    longest = max(case.lengths)
    at_once = {"mask_all": True, "late_q": True}
    if longest <= 128:
        width = max(16, longest)
        found = [TileConfig(16, width, 4, **at_once), TileConfig(16, width, 4, mask_all=True)]
        found += [TileConfig(16, 16, 1, **at_once)] if longest <= 16 else [TileConfig(32, width, 8, **at_once)]
        if longest > 16:
            found += [TileConfig(32, width, 4, **at_once), TileConfig(64, min(width, 64), 4, **at_once)]
        if longest == 128:
            found += [TileConfig(16, 128, 8, **at_once), TileConfig(16, 64, 4, **at_once)]
            found += [TileConfig(64, 128, 4, **at_once), TileConfig(64, 64, 4, mask_all=True)]
        if case.num_empty:
            found += [TileConfig(16, 16, 1, **at_once), TileConfig(32, 64, 4, mask_all=True), TileConfig(32, 32, 4)]
        return found
    found = [TileConfig(64, 64, 4, stages=stages, mask_all=once) for stages in (2, 3) for once in (True, False)]
    found += [TileConfig(128, 64, 8, stages=stages) for stages in (2, 3)] + [TileConfig(64, 128, 4, mask_all=True)]
    found += [TileConfig(64, 32, 4, stages=stages, mask_all=True) for stages in (3, 4)]
    if longest <= 512:
        found += [
            TileConfig(64, 64, 4, **at_once),
            TileConfig(32, 64, 4, mask_all=True),
            TileConfig(16, 128, 4, mask_all=True),
        ]
        found += [TileConfig(32, 128, 8, mask_all=True), TileConfig(128, 64, 8, mask_all=True)]
    else:
        found += [TileConfig(128, 128, 8), TileConfig(64, 128, 4), TileConfig(128, 128, 8, mask_all=True)]
    return found


def compile_one(job: tuple[Case, TileConfig]) -> str | None:
    """Compile into triton's cache, in a process of its own; returns what went wrong."""
    case, config = job
    try:
        (query, key, value), starts = case.tensors()
        attend(query, key, value, starts, config, causal=case.causal)
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return None


def time_us(call: Callable[[], torch.Tensor]) -> float:
    """Median time of a call in a graph of many."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            call()
    graph.replay()
    samples: list[float] = []
    for _ in range(_REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1000 / _CALLS)
    return statistics.median(samples)


def label(config: TileConfig) -> str:
    """Short, for the table."""
    flags = [name for name in ("mask_all", "late_q") if getattr(config, name)]
    return "·".join([f"{config.block_m}x{config.block_n}w{config.warps}s{config.stages}", *flags])


def measure(case: Case, configs: list[TileConfig]) -> dict[str, Any]:
    """Time torch's kernel and ours in each configuration."""
    (query, key, value), starts = case.tensors()
    metadata = AttentionMetadata(starts, starts.cpu().numpy(), case.bound)
    rival = TorchVarlenAttention()
    group = case.shape[0] // case.shape[1]
    keys, values = (heads.repeat_interleave(group, dim=1) for heads in (key, value))
    torch_us = time_us(lambda: rival.forward(query, keys, values, metadata, causal=case.causal))
    expected = rival.forward(query, keys, values, metadata, causal=case.causal).float()
    rows: list[dict[str, Any]] = []
    for config in configs:
        error = (attend(query, key, value, starts, config, causal=case.causal).float() - expected).abs().max().item()
        microseconds = time_us(partial(attend, query, key, value, starts, config, causal=case.causal))
        rows.append({"us": round(microseconds, 2), "error": error, "config": asdict(config), "label": label(config)})
    rows.sort(key=lambda row: row["us"])
    chosen_us = next((row["us"] for row in rows if row["label"] == label(case.chosen)), None)
    return {"case": str(case), "torch_us": round(torch_us, 2), "chosen_us": chosen_us, "rows": rows}


def main() -> None:
    """Compile, time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")) / "tune_attention.json")
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    arguments = parser.parse_args()
    os.environ.setdefault("TRITON_CACHE_DIR", "/tmp/tune_attention")
    cases = [Case(shape, lengths) for shape in (QWEN3, XLM_ROBERTA, MINILM) for lengths in LENGTHS]
    cases += [Case(QWEN3, lengths, causal=True) for lengths in ((128,), (512,), (4096,), (512,) * 25)]
    cases += [
        Case(shape, lengths, num_empty=num_sequences - len(lengths))
        for shape in (QWEN3, XLM_ROBERTA)
        for lengths, num_sequences in PADDED
    ]
    cases = [case for case in cases if arguments.filter in str(case)]
    plan = {case: list(dict.fromkeys([*candidates(case), case.chosen])) for case in cases}
    jobs = {}  # one for each kernel that there will be
    for case, configs in plan.items():
        for config in configs:
            jobs[case.shape, case.causal, case.width, config] = (case, config)
    begin = time.perf_counter()
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), multiprocessing.get_context("spawn")) as pool:
        failures = dict(zip(jobs, pool.map(compile_one, jobs.values(), chunksize=4), strict=True))
    print(f"{len(jobs)} kernels compiled in {time.perf_counter() - begin:.1f} s")
    for (shape, causal, _, config), failure in failures.items():
        if failure is not None:
            print("FAILED", shape, causal, label(config), failure)
    results = []
    print(f"{'case':38} {'torch':>7} {'chosen':>7}  best three")
    for case, configs in plan.items():
        usable = [config for config in configs if failures[case.shape, case.causal, case.width, config] is None]
        result = measure(case, usable)
        results.append(result)
        best = "  ".join(f"{row['us']:.2f} {row['label']}" for row in result["rows"][:3])
        worst = max((row["error"] for row in result["rows"]), default=0)
        note = f"  ERROR {worst:.3f}" if not worst < 0.03 else ""
        print(
            f"{result['case']:38} {result['torch_us']:7.2f} {result['chosen_us'] or 0:7.2f}  {best}{note}", flush=True
        )
    arguments.output.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "cases": results}))
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
