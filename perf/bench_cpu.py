"""Lazuli against sentence-transformers on a CPU: the same texts, one process, turn and turn about.

    .venv/bin/python perf/bench_cpu.py --machine cpu-2core

Both tokenise and embed in process, so that the engines are compared and not a network. Suites: `throughput` (texts of
8 to 512 tokens, in batches of 32 and all at once) and `latency` (one short text). Prints a table and writes JSON lines.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version

import numpy as np
import tokenizers
import torch
from sentence_transformers import SentenceTransformer

import lazuli
from lazuli.allocator import keep_memory
from lazuli.checkpoint import resolve_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT, EngineConfig, TokenizerConfig
from lazuli.device import choose_device
from lazuli.engine import Engine
from lazuli.options import RequestOptions
from lazuli.outputs.dense import DenseModel
from lazuli.request import Sequence as TokenSequence
from lazuli.request import UnaryRequest
from lazuli.scheduler import Scheduler
from lazuli.tokenizer import TextTokenizer
from measurement import Measurement, positive, write
from texts import make_texts, mixed_lengths

Embed = Callable[[list[str]], np.ndarray]
_MAX_LENGTH = 512


class LazuliEmbedder:
    """Tokenizer, scheduler and engine, without the server around them."""

    def __init__(self, dtype: str) -> None:
        """Load the default model."""
        self._tokenizer = TextTokenizer.from_config(TokenizerConfig(max_seq_length=_MAX_LENGTH))
        keep_memory()  # as the service does; the reference gains by it too, being in the same process
        self._engine = Engine(EngineConfig(dtype=dtype), choose_device("cpu", None))
        self._engine.warm_up()

    def __call__(self, texts: list[str]) -> np.ndarray:
        """[N, D] vectors, in batches as the scheduler cuts them."""
        rows = [np.array(text.input_ids, dtype=np.int32) for text in self._tokenizer.tokenize(texts, RequestOptions())]
        vectors = np.empty((len(rows), self._engine.dimension), dtype=np.float32)
        for batch in _cut(rows, self._engine.token_budget):
            vectors[[sequence.row for sequence in batch]] = self._engine.embed_ids([row.input_ids for row in batch])
        return vectors


def _cut(rows: list[np.ndarray], token_budget: int) -> list[list[TokenSequence]]:
    scheduler = Scheduler(
        token_budget=token_budget, max_sequences=512, max_queued_tokens=2**62, max_waiting_tokens=2**62
    )
    scheduler.submit(UnaryRequest(rows, DenseModel(1, True).choose(RequestOptions()), sender=None))
    scheduler.close()
    return list(iter(scheduler.next_batch, []))


class SentenceTransformersEmbedder:
    """The reference, as its documentation says to use it."""

    def __init__(self, dtype: str) -> None:
        """Load the same checkpoint."""
        self._model = SentenceTransformer(
            str(resolve_checkpoint(DEFAULT_CHECKPOINT)),
            device="cpu",
            model_kwargs={"dtype": getattr(torch, dtype)},
        )
        self._model.max_seq_length = _MAX_LENGTH

    def __call__(self, texts: list[str]) -> np.ndarray:
        """[N, D] vectors; sorts by length and pads batches of 32."""
        return self._model.encode(texts, batch_size=32, show_progress_bar=False)


def in_batches(embed: Embed, texts: list[str], size: int) -> np.ndarray:
    """Embed in the order of arrival, `size` texts a call: what a server sees."""
    return np.concatenate([embed(texts[start : start + size]) for start in range(0, len(texts), size)])


def measure(runs: dict[str, Callable[[], object]], repeats: int, warm_up: int) -> dict[str, list[float]]:
    """Time each run `repeats` times in ms, in turn, so that a drift of the machine hits all alike."""
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(-warm_up, repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if repeat >= 0:
                samples[name].append((time.perf_counter() - start) * 1e3)
    return samples


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all suites."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--texts", type=positive, default=256)
    parser.add_argument("--repeats", type=positive, default=5)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    options = parser.parse_args(arguments)
    torch.set_num_threads(len(os.sched_getaffinity(0)))

    tokenizer = tokenizers.Tokenizer.from_file(str(resolve_checkpoint(DEFAULT_CHECKPOINT) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lengths = mixed_lengths(options.texts)
    texts = make_texts(tokenizer, lengths)
    tokens = sum(len(tokenizer.encode(text).ids) for text in texts)
    short = make_texts(tokenizer, [16], seed=1)

    reference = f"sentence-transformers {version('sentence-transformers')}"
    systems: dict[tuple[str, str], Embed] = {(reference, "float32"): SentenceTransformersEmbedder("float32")}
    systems |= {(f"lazuli {lazuli.__version__}", dtype): LazuliEmbedder(dtype) for dtype in options.dtypes}
    measurements = []

    def suite(name: str, make_run: Callable[[Embed], Callable[[], object]], repeats: int, **fields: object) -> None:
        runs = {system: make_run(embed) for system, embed in systems.items()}
        for (system, dtype), samples in measure(runs, repeats, warm_up=1).items():
            line = Measurement(system, "engine", name, DEFAULT_CHECKPOINT, dtype, samples, **fields)  # type: ignore[arg-type]
            measurements.append(line)
            print(f"{name:10} {fields} {system} {dtype}: median {np.median(samples):.2f} ms", flush=True)

    mixed = f"{min(lengths)}-{max(lengths)}"
    counts = {"texts": len(texts), "tokens": tokens, "len": mixed}
    suite("throughput", lambda embed: lambda: in_batches(embed, texts, 32), options.repeats, batch=32, **counts)
    suite("throughput", lambda embed: lambda: embed(texts), options.repeats, batch=len(texts), **counts)
    suite("latency", lambda embed: lambda: embed(short), 40 * options.repeats, batch=1, len=16, tokens=16)

    expected = next(iter(systems.values()))(texts)
    for (name, dtype), embed in list(systems.items())[1:]:
        cosines = (expected * embed(texts)).sum(axis=1)
        print(f"{name} {dtype}: least cosine to the reference {cosines.min():.7f}")
        for line in measurements:
            if (line.system, line.dtype) == (name, dtype):
                line.extra["min_cosine"] = float(cosines.min())
    print(write(options.machine, "cpu_comparison", measurements))


if __name__ == "__main__":
    main()
