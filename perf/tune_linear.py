"""Measures how the Triton-language products are best cut on this GPU, and writes `linear_tilings.json` for the engine.

    python3 perf/tune_linear.py --output backend_src/lazuli/linear_tilings.json

For few tokens: the four fused layers, each with a number of tokens and the cuts that divide it. For many tokens: a
product and what follows in one kernel against the library's product and a kernel of its own. Kernels are compiled by
several processes first; each is then timed inside a CUDA graph over as many different weights as a model has layers, so
that they come from memory.
"""

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from lazuli import fused_linear
from lazuli.kernels import silu_multiply
from lazuli.layers.stream import Stream
from lazuli.triton_kernels.matmul import Blocks, matmul
from lazuli.triton_kernels.products import Tiling

_FEW = (16, 32, 64, 128, 192, 256)
_MANY = (512, 1024, 2560, 4096, 12800, 25600)
_SHARED_MEMORY = 227 * 1024
_HEAD_DIM = {4096: 128, 6144: 128}


@dataclass(frozen=True)
class Layer:
    """One kind of layer: N and K as in `lazuli.linear_tiling`; `layers` of it are in a model."""

    kind: str
    num_outputs: int
    size: int
    layers: int


# Qwen3-0.6B, XLM-RoBERTa large.
LAYERS = (
    Layer("norm_qkv", 4096, 1024, 28),
    Layer("linear_add", 1024, 2048, 28),
    Layer("norm_gate_up", 3072, 1024, 28),
    Layer("linear_add", 1024, 3072, 28),
    Layer("layer_norm_linear", 3072, 1024, 24),
    Layer("linear_add", 1024, 1024, 24),
    Layer("layer_norm_linear", 4096, 1024, 24),
    Layer("linear_add", 1024, 4096, 24),
)
ACTIVATED = (
    Layer("silu_multiply", 6144, 1024, 28),
    Layer("gelu", 4096, 1024, 24),
    Layer("gelu", 1536, 384, 6),
)


def tilings(layer: Layer, num_tokens: int) -> Iterator[Tiling]:
    """The cuts worth trying: enough programs to keep memory busy, few enough to run at once."""
    two = 2 if layer.kind in ("norm_qkv", "norm_gate_up") else 1
    outputs = (_HEAD_DIM[layer.num_outputs] // 2,) if layer.kind == "norm_qkv" else (16, 32, 64, 128)
    block_m = min(num_tokens, 64)
    for block_n, block_k, splits, stages in itertools.product(outputs, (64, 128, 256), (1, 2, 4), (3, 5)):
        for warps in (4,) if block_m * block_n * two < 64 * 128 else (4, 8):
            used = (block_m + two * block_n) * block_k * 2 * stages
            programs = -(-num_tokens // block_m) * (layer.num_outputs // block_n) * splits
            blocks_each, rest = divmod(layer.size, splits * block_k)
            if used <= _SHARED_MEMORY and not rest and blocks_each >= 2 and 32 <= programs <= 132 * 3:
                yield Tiling(block_m, block_n, block_k, splits, warps, stages)


def all_blocks() -> Iterator[Blocks]:
    """The cuts worth trying for many tokens."""
    for specialize in (False, True):
        yield Blocks(128, 256, 64, 8, 3, 1, specialize)
        yield Blocks(128, 128, 64, 8, 3, 1, specialize)
    yield Blocks(128, 128, 64, 4, 3, 2)
    yield Blocks(128, 128, 64, 8, 3, 2)
    yield Blocks(128, 128, 64, 4, 3, 100)
    yield Blocks(64, 256, 64, 4, 3, 2)
    yield Blocks(128, 256, 64, 8, 3, 100)
    yield Blocks(128, 128, 128, 8, 3, 1)
    yield Blocks(128, 256, 64, 8, 2, 1)
    yield Blocks(128, 128, 64, 8, 2, 2)
    yield Blocks(128, 128, 64, 4, 2, 2)
    yield Blocks(128, 64, 64, 4, 3, 3)
    yield Blocks(64, 256, 64, 4, 2, 2)
    yield Blocks(64, 128, 64, 4, 3, 2)
    yield Blocks(128, 128, 64, 4, 4, 1)
    yield Blocks(256, 128, 64, 8, 3, 1)


def caller(layer: Layer, num_tokens: int, device: str = "cuda") -> Callable[[int, Any], torch.Tensor]:
    """A function of (number of a layer, tiling) that runs one layer on fixed random inputs."""
    torch.manual_seed(0)

    def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=dtype) * 0.05

    outputs, size = layer.num_outputs, layer.size
    rows = outputs * (2 if layer.kind == "norm_gate_up" else 1)
    weights = [random(rows, size) for _ in range(layer.layers)]
    hidden, bias, residual = random(num_tokens, size), random(outputs), random(num_tokens, outputs)
    vector = random(outputs, dtype=torch.float32)
    workspace = fused_linear.Workspace(torch.device(device), 8192, max_tokens=256)
    stream = Stream(hidden, torch.rand(num_tokens, 2, 32, device=device) + 1)
    added = Stream(residual, stream.sums)

    def run(index: int, cut: Any) -> torch.Tensor:
        weight = weights[index % len(weights)]
        if layer.kind in separate:
            return separate[layer.kind](weight) if cut is None else matmul(hidden, weight, bias, layer.kind, cut)
        fused_linear.choose_tiling = lambda *_, **__: cut  # type: ignore[attr-defined]
        if layer.kind == "norm_qkv":
            return fused_linear.norm_qkv(stream, weight, *rotary, 1e-6, workspace)
        if layer.kind == "norm_gate_up":
            return fused_linear.norm_gate_up(stream, weight, 1e-6, workspace)
        if layer.kind == "linear_add":
            return fused_linear.linear_add(hidden, weight, added, workspace).values
        return fused_linear.layer_norm_linear(stream, weight, vector, vector, 1e-5, workspace, gelu=outputs == 4096)

    separate: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "gelu": lambda weight: F.gelu(torch.addmm(bias, hidden, weight.t())),
        "silu_multiply": lambda weight: silu_multiply(torch.mm(hidden, weight.t())),
    }
    head_dim = _HEAD_DIM.get(outputs, 64)
    table = random(1024, head_dim // 2, dtype=torch.float32)
    positions = torch.arange(num_tokens, dtype=torch.int32, device=device) % 1024
    rotary = (random(outputs // head_dim * 3 // 4, head_dim), table, table, positions)
    return run


def compile_some(jobs: list[tuple[Layer, int, Any]]) -> int:
    """Run each once in this process, so that the kernels lie in the cache on disk; returns how many failed."""
    failed = 0
    for layer, num_tokens, cut in jobs:
        small = Layer(layer.kind, layer.num_outputs, layer.size, 1)
        try:
            caller(small, num_tokens)(0, cut)
        except Exception:
            failed += 1
    torch.cuda.synchronize()
    return failed


def microseconds(run: Callable[[int, Any], torch.Tensor], cut: Any, layers: int, repeats: int) -> float:
    """Median time of one layer inside a graph of many."""
    run(0, cut)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(layers):
            run(index, cut)
    samples: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / layers)
    return statistics.median(samples)


def best(layer: Layer, num_tokens: int, cuts: list[Any], repeats: int) -> tuple[Any, float, float | None]:
    """The quickest cut, its time, and the time of `None` if that was among them."""
    run = caller(layer, num_tokens)
    times: dict[Any, float] = {}
    for cut in cuts:
        try:
            times[cut] = microseconds(run, cut, layer.layers, repeats)
        except Exception as error:  # out of registers or of shared memory
            print(f"  {layer.kind} {cut}: {type(error).__name__}", flush=True)
    for cut, time_us in sorted(times.items(), key=lambda pair: pair[1])[:3]:
        print(f"  {layer.kind} {num_tokens}x{layer.num_outputs}x{layer.size} {cut}: {time_us:.2f} us", flush=True)
    winner = min(times, key=lambda cut: times[cut])
    return winner, times[winner], times.get(None)


def main() -> None:
    """Compile, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--few", type=int, nargs="*", default=_FEW, help="numbers of tokens")
    parser.add_argument("--many", type=int, nargs="*", default=_MANY, help="numbers of tokens")
    options = parser.parse_args()

    few = [(layer, count, tiling) for layer in LAYERS for count in options.few for tiling in tilings(layer, count)]
    many = [(layer, count, cut) for layer in ACTIVATED for count in options.many for cut in all_blocks()]
    # What is compiled depends on the cut, not on the number of tokens.
    distinct = list(
        {
            (layer.kind, layer.size, layer.num_outputs if layer.kind == "layer_norm_linear" else 0, cut): job
            for job in few + many
            for layer, _, cut in [job]
        }.values()
    )
    start = time.perf_counter()
    workers = max(1, len(os.sched_getaffinity(0)) - 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        failed = sum(pool.map(compile_some, [distinct[index::workers] for index in range(workers)]))
    print(f"{len(distinct)} kernels in {time.perf_counter() - start:.0f} s, {failed} failed", flush=True)

    entries = []
    for layer in LAYERS:
        for count in options.few:
            cut, time_us, _ = best(layer, count, list(tilings(layer, count)), 7)
            entry = {"kind": layer.kind, "num_outputs": layer.num_outputs, "size": layer.size, "num_tokens": count}
            entries.append(entry | {"tiling": asdict(cut), "us": round(time_us, 2)})
    for layer in ACTIVATED:
        for count in options.many:
            cut, time_us, library_us = best(layer, count, [None, *all_blocks()], 15)
            entry = {"kind": layer.kind, "num_outputs": layer.num_outputs, "size": layer.size, "num_tokens": count}
            blocks = asdict(cut) if cut is not None else None
            entries.append(entry | {"blocks": blocks, "us": round(time_us, 2), "library_us": round(library_us or 0, 2)})
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    options.output.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
