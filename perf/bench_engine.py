"""The engine alone: from packed ids to vectors in host memory.

    .venv/bin/python perf/bench_engine.py --machine h200 --device cuda --checkpoint /tmp/qwen3 --name engine_qwen3

Random ids, warmed up until every size is replayed. Suites: `start` (until the service is ready), `latency` (one text),
`scoring` (several of 512 tokens), `throughput` (four clients that each keep asking for 100 texts; scheduler and reply
threads included), and on a GPU `captures` (one query at a time while graphs of other sizes are captured).
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

import lazuli
from clients.waiter import Waiter
from lazuli.batch import RaggedBatch
from lazuli.config import DEFAULT_CHECKPOINT, EngineConfig
from lazuli.engine import Engine
from lazuli.options import RequestOptions
from lazuli.service import EmbeddingService
from reporting.measurement import Measurement, positive, write

_WARM_UP = 5  # eager, capture, and some replays
_CLIENTS = 4
_TEXTS_A_CLIENT = 100


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
            waiter, start = Waiter(), time.perf_counter()
            service.submit(ids, np.ones_like(ids, dtype=np.int8), RequestOptions(), waiter)
            waiter.wait()
            samples.append((time.perf_counter() - start) * 1e3)
        return samples

    start = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as clients:
        samples = [sample for part in clients.map(client, range(_CLIENTS)) for sample in part]
    return samples, time.perf_counter() - start


def measure_while_capturing(config: EngineConfig, length: int, queries: int) -> list[float]:
    """Time of each query of one length in ms, while queries of other lengths before it have graphs captured.

    The service starts without a profile, so most of those lengths have no graph of their own yet.
    """
    rng, samples = np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as folder:
        service = EmbeddingService(replace(config, cache_dir=folder), streaming=False)
        longest = min(8192, service.engine.limits.max_positions)
        for _ in range(queries):
            _ask(service, int(np.exp(rng.uniform(np.log(4), np.log(longest)))), rng)
            time.sleep(rng.uniform(0, 0.06))  # captures begin after 20 ms
            samples.append(_ask(service, length, rng))
        print(service.engine.graph_counters)
        service.close()
    return samples


def _ask(service: EmbeddingService, length: int, rng: np.random.Generator) -> float:
    """Time of one query in ms."""
    ids = rng.integers(service.engine.limits.vocab_size, size=(1, length), dtype=np.int32)
    waiter, start = Waiter(), time.perf_counter()
    service.submit(ids, np.ones_like(ids, dtype=np.int8), RequestOptions(), waiter, may_step=True)
    waiter.wait()
    return (time.perf_counter() - start) * 1e3


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
    parser.add_argument("--len", type=positive, nargs="*", default=[16, 128, 512, 4096], help="of one text")
    parser.add_argument("--batch", type=positive, nargs="*", default=[5, 25, 50], help="texts of 512 tokens")
    parser.add_argument("--throughput", type=positive, nargs="*", default=[512, 4096], help="tokens of each text")
    parser.add_argument("--repeats", type=positive, default=200)
    parser.add_argument("--rounds", type=positive, default=5, help="requests of each client")
    parser.add_argument("--queries", type=int, default=300, help="of the suite `captures`; 0 leaves it out")
    options = parser.parse_args(arguments)

    config = EngineConfig(
        checkpoint=options.checkpoint, device=options.device, dtype=options.dtype, attention=options.attention
    )
    # A request of 50 texts is one batch in the scoring suite, as it is for the systems compared with.
    started = time.perf_counter()
    service = EmbeddingService(replace(config, token_budget=50 * 512), streaming=False)
    ready_ms = (time.perf_counter() - started) * 1e3
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
        write(options.machine, options.name, measurements)  # so that a run that is cut off leaves what it has
        print(line.summary(), flush=True)

    memory_mb = _memory_beyond_weights_mb(service.engine)
    shown = f"{memory_mb:.0f} MB of the device beyond the weights" if memory_mb else None
    note("start", [ready_ms], texts=None, note=shown)
    for length in (length for length in options.len if length <= limit):
        samples = measure_batches(service.engine, length, 1, options.repeats)
        note("latency", samples, len=length, batch=1, texts=1, tokens=length)
    for batch in options.batch if limit >= 512 else []:
        samples = measure_batches(service.engine, 512, batch, max(options.repeats // 4, 5))
        note("scoring", samples, len=512, batch=batch, texts=batch, tokens=512 * batch)
    for length in (length for length in options.throughput if length <= limit):
        measure_clients(service, length, 1)
        samples, wall_s = measure_clients(service, length, options.rounds)
        counts = {"batch": _TEXTS_A_CLIENT, "texts": _TEXTS_A_CLIENT, "tokens": _TEXTS_A_CLIENT * length}
        note("throughput", samples, len=length, concurrency=_CLIENTS, wall_s=wall_s, **counts)
    print(service.engine.graph_counters)
    service.close()
    if service.engine.device.type == "cuda" and options.queries:
        samples = measure_while_capturing(config, 128, options.queries)
        note("captures", samples, len=128, batch=1, note="while graphs of other sizes are captured")


def _memory_beyond_weights_mb(engine: Engine) -> float | None:
    """What this process and all others hold of a GPU, less the files of the weights; None on a CPU."""
    if engine.device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(engine.device)
    weights = sum(file.stat().st_size for file in engine.checkpoint.path.glob("*.safetensors"))
    return (total - free - weights) / 2**20


if __name__ == "__main__":
    main()
