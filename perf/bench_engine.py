"""The engine alone: from packed ids to vectors in host memory, one batch at a time.

    .venv/bin/python perf/bench_engine.py --machine h200 --device cuda

Random ids, warmed up until every size is replayed. Suites: `latency` (one text) and `scoring` (several of
512 tokens, if the model takes as many).
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

import lazuli
from lazuli.config import DEFAULT_CHECKPOINT, EngineConfig
from lazuli.engine import Engine, choose_device
from measurement import Measurement, write

_WARM_UP = 5  # eager, capture, and some replays


def measure(engine: Engine, length: int, batch: int, repeats: int) -> list[float]:
    """Time of each pass in ms, on fresh ids each time."""
    rng = np.random.default_rng(length * 1000 + batch)
    samples = []
    for repeat in range(-_WARM_UP, repeats):
        rows = list(rng.integers(engine.limits.vocab_size, size=(batch, length), dtype=np.int32))
        start = time.perf_counter()
        engine.embed_ids(rows)
        if repeat >= 0:
            samples.append((time.perf_counter() - start) * 1e3)
    return samples


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suites."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--checkpoint", default=DEFAULT_CHECKPOINT)
    parser.add_argument("--device", default=None)
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--len", type=int, nargs="+", default=[16, 128, 512])
    parser.add_argument("--batch", type=int, nargs="+", default=[5, 25, 50], help="for 512 tokens")
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args(arguments)

    config = EngineConfig(checkpoint=options.checkpoint, dtype=options.dtype, token_budget=65536)
    engine = Engine(config, choose_device(options.device, None))
    work = [("latency", length, 1) for length in options.len]
    work += [("scoring", 512, batch) for batch in options.batch if engine.limits.max_positions >= 512]
    measurements = []
    for suite, length, batch in work:
        samples = measure(engine, length, batch, options.repeats)
        line = Measurement(
            f"lazuli {lazuli.__version__}",
            "engine",
            suite,
            options.checkpoint,
            options.dtype or "auto",
            samples,
            len=length,
            batch=batch,
            texts=batch,
            tokens=length * batch,
        )
        measurements.append(line)
        print(line.summary(), flush=True)
    print(write(options.machine, "engine", measurements))


if __name__ == "__main__":
    main()
