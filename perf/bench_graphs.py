"""How well about a hundred graphs serve mixed traffic: simulated on any machine, and measured on a GPU.

    .venv/bin/python perf/bench_graphs.py --machine cpu-2core                          # the simulation alone
    .venv/bin/python perf/bench_graphs.py --machine h200 --device cuda --checkpoint /tmp/qwen3 --name graphs_qwen3

The simulation plays requests of queries (4 to 32 tokens) and documents (log-normal, median 200) to the real scheduler
rules and bucket table, and counts what is computed for nothing, and how many graphs are used. On a GPU each bucket is
captured, and its replay is compared with an eager run; where eager is as quick, and what memory graphs take, is noted.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import lazuli
from lazuli.batch import RaggedBatch
from lazuli.buckets import Bucket, BucketTable
from reporting.measurement import Measurement, write

_TOKEN_BUDGET = 16384
_MAX_SEQUENCES = 512
_MAX_SEQLEN = 8192
_SIMULATED_S = 10.0
# Of the simulated device: 0.6 billion parameters on an H200.
_STEP_S = 0.7e-3
_TOKEN_S = 1.2e-6
_LEAST_S = 0.2e-3  # to read the weights
_LOADS = (0.05, 0.3, 0.7)
_RUNS = 20


def make_request(rng: np.random.Generator) -> np.ndarray:
    """Lengths of a request's texts: one text half of the time, else 1 to 64 of them; queries or documents."""
    count = 1 if rng.random() < 0.5 else int(2 ** rng.uniform(0, 6))
    if rng.random() < 0.6:
        return rng.integers(4, 33, size=count)
    lengths: np.ndarray = np.clip(np.exp(rng.normal(np.log(200), 1.0, size=count)), 4, _MAX_SEQLEN).astype(int)
    return lengths


def simulate(load: float, seed: int) -> Iterator[Bucket]:
    """Sizes of the batches at a load of so much of what the device can do: requests come as a Poisson process."""
    rng = np.random.default_rng(seed)
    mean_tokens = np.mean([make_request(rng).sum() for _ in range(2000)])
    gap_s = mean_tokens * _TOKEN_S / load
    waiting: list[int] = []
    now = arrival = 0.0
    while now < _SIMULATED_S:
        if not waiting:
            now = max(now, arrival)
        while arrival <= now:
            waiting.extend(make_request(rng))
            arrival += rng.exponential(gap_s)
        batch = [waiting.pop(0)]
        while waiting and len(batch) < _MAX_SEQUENCES and sum(batch) + waiting[0] <= _TOKEN_BUDGET:
            batch.append(waiting.pop(0))
        yield Bucket(int(sum(batch)), len(batch), int(max(batch)))
        now += _STEP_S + _TOKEN_S * sum(batch)


def measure_waste(load: float, by_longest: bool) -> Measurement:
    """What a trace computes for nothing; the samples are the extra time of each batch on the simulated device."""
    limits = {"max_tokens": _TOKEN_BUDGET, "max_sequences": _MAX_SEQUENCES, "max_seqlen": _MAX_SEQLEN}
    table = BucketTable(**limits, by_longest=by_longest)
    used: Counter[Bucket] = Counter()
    samples = []
    real = padded = idle_programs = 0
    total_s = 0.0
    for sizes in simulate(load, seed=1):
        bucket = table.find(sizes)
        assert bucket is not None, "every batch up to the budget has a bucket"
        used[bucket] += 1
        real += sizes.num_tokens
        padded += bucket.num_tokens - sizes.num_tokens
        # In excess of what the exact sizes would start.
        idle_programs += (table.cost(bucket) - bucket.num_tokens) - (table.cost(sizes) - sizes.num_tokens)
        exact_s, bucket_s = (max(_LEAST_S, _TOKEN_S * table.cost(which)) for which in (sizes, bucket))
        total_s += exact_s
        samples.append(round(1e3 * (bucket_s - exact_s), 4))
    busiest = [count for _, count in used.most_common()]
    extra = {
        "load": load,
        "batches": len(samples),
        "buckets": len(table.buckets),
        "buckets_used": len(used),
        "buckets_for_99_percent": int(np.searchsorted(np.cumsum(busiest), 0.99 * len(samples))) + 1,
        "padded_tokens_percent": 100 * padded / real,
        "idle_programs_percent_of_tokens": 100 * idle_programs / real,
        "extra_time_percent": 0.1 * sum(samples) / total_s,
        "exact_sizes": len(set(simulate(load, seed=1))),
    }
    kind = "programs for the longest" if by_longest else "programs for each sequence"
    note = (
        f"{kind}, load {load}: {len(used)} of {len(table.buckets)} buckets used, "
        f"{extra['padded_tokens_percent']:.1f} % padding, {extra['extra_time_percent']:.1f} % more time; extra ms:"
    )
    line = Measurement(f"lazuli {lazuli.__version__}", "engine", "waste", "mixed trace", "any", samples)
    line.texts, line.note, line.extra = None, note, extra
    return line


def measure_graphs(options: argparse.Namespace) -> list[Measurement]:
    """Capture every bucket; time it, eager runs and replays; and how long the start takes."""
    import torch

    from lazuli.config import EngineConfig
    from lazuli.cuda import dummy_batch
    from lazuli.engine import Engine

    config = EngineConfig(
        checkpoint=options.checkpoint,
        dtype=options.dtype,
        token_budget=options.token_budget,
        graph_max_tokens=options.token_budget,
        graph_memory_mb=100_000,
        graph_start_s=0.0,
        cache_dir=options.cache_dir,
    )
    device = torch.device(options.device)
    start = time.perf_counter()
    engine = Engine(config, device)
    loaded_s = time.perf_counter() - start
    torch.cuda.empty_cache()
    weights_bytes, free = torch.cuda.memory_allocated(device), torch.cuda.mem_get_info(device)[0]
    start = time.perf_counter()
    engine.warm_up()
    warm_s = time.perf_counter() - start
    stepper: Any = engine._stepper
    graphs = stepper.graphs
    measurements = []

    def note(suite: str, samples: list[float], **fields: object) -> None:
        model = (options.model or options.checkpoint, options.dtype or "auto")
        line = Measurement(f"lazuli {lazuli.__version__}", "engine", suite, *model, samples)
        for name, value in fields.items():
            setattr(line, name, value)
        measurements.append(line)
        print(line.summary(), line.extra, flush=True)

    captures_ms = []
    for bucket in sorted(graphs.table.buckets, key=lambda bucket: -bucket.num_tokens):
        if bucket in graphs:
            continue
        start = time.perf_counter()
        if not stepper.capture(bucket):
            print(f"{bucket} cannot be captured", flush=True)
            continue
        captures_ms.append((time.perf_counter() - start) * 1e3)
    counters = asdict(graphs.snapshot())
    counters |= {
        "load_s": loaded_s,
        "warm_up_s": warm_s,
        "device_beyond_weights_mb": (free - torch.cuda.mem_get_info(device)[0]) / 2**20,
        "reserved_beyond_weights_mb": (torch.cuda.memory_reserved(device) - weights_bytes) / 2**20,
    }
    text = f"{len(graphs)} graphs, {counters['device_beyond_weights_mb']:.0f} MB of the device beyond the weights, "
    text += f"{counters['graph_bytes'] / 2**20:.0f} MB of these for graphs; a capture:"
    extra = {name: float(value) for name, value in counters.items()}
    note("capture", captures_ms or [0.0], texts=None, extra=extra, note=text)
    for bucket in graphs.table.buckets:
        if bucket not in graphs or bucket not in graphs.table.coarse:
            continue
        batch = dummy_batch(bucket)
        replay_ms = [_time_replay(stepper, batch, bucket) for _ in range(_RUNS)]
        extra = {"sequences": bucket.num_sequences, "longest": bucket.max_seqlen}
        extra["replay_behind_others_ms"] = stepper.time_replay(bucket) * 1e3
        extra["eager_behind_others_ms"] = stepper.time_eager(bucket) * 1e3
        text = f"up to {bucket.num_sequences} sequences; eager {extra['eager_behind_others_ms']:.2f} ms"
        note("replay", replay_ms, len=bucket.num_tokens, texts=None, tokens=bucket.num_tokens, extra=extra, note=text)
    start = time.perf_counter()
    inflection = engine._keeper._measure()  # type: ignore[union-attr]
    took_ms = (time.perf_counter() - start) * 1e3
    note("inflection", [took_ms], texts=None, extra={"tokens": inflection}, note=f"{inflection} tokens; measuring it:")
    return measurements


def _time_replay(stepper: Any, batch: RaggedBatch, bucket: Bucket) -> float:
    """From a packed batch to vectors in host memory, in ms."""
    start = time.perf_counter()
    stepper._queue(batch, bucket, stepper._replay).result()
    return (time.perf_counter() - start) * 1e3


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the simulation, and on a GPU the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--name", default="graphs", help="file there")
    parser.add_argument("--device", help="cuda or cuda:N; without it only the simulation runs")
    parser.add_argument("--checkpoint", default="all-MiniLM-L6-v2")
    parser.add_argument("--model", help="what to call the checkpoint")
    parser.add_argument("--dtype")
    parser.add_argument("--token-budget", type=int, default=_TOKEN_BUDGET)
    parser.add_argument("--cache-dir")
    options = parser.parse_args(arguments)
    measurements = [measure_waste(load, by_longest) for by_longest in (False, True) for load in _LOADS]
    for line in measurements:
        print(line.note, {name: round(value, 2) for name, value in line.extra.items()}, flush=True)
    if options.device:
        measurements += measure_graphs(options)
    print(write(options.machine, options.name, measurements))


if __name__ == "__main__":
    main()
