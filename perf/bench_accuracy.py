"""How near the engine's vectors and scores are to those of `transformers` in float32, on a CPU.

    .venv/bin/python perf/bench_accuracy.py --machine cpu-2core

Each model family by a checkpoint of a published one's widths with random weights in few layers, and all-MiniLM-L6-v2 by
its own. The same random ids go through both: the reference takes one text at a time, the engine all in one ragged
batch, in float32 and in bfloat16. Takes the names of checkpoints, writes JSON lines. Knows nothing of texts.
"""

import argparse
import gc
import json
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils import logging as transformers_logging

import lazuli
from checkpoints.families import STANDS, write_model, write_token_layers
from checkpoints.reference import NO, YES, Outputs, reference_outputs
from lazuli.checkpoint import load_checkpoint, resolve_checkpoint
from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.options import RequestOptions
from lazuli.tokenwise.form import TokenForm
from lazuli.tokenwise.probe import run_tokens
from lazuli.verify.measures import cosines
from reporting.measurement import Accuracy, positive, write

REAL = "all-MiniLM-L6-v2"
LENGTHS = (3, 5, 8, 16, 16, 33, 64, 100, 128, 256, 400)
DTYPES = ("float32", "bfloat16")
# Ids below are special tokens in one vocabulary or another.
_FIRST_WORD = 1000


def compare(expected: Sequence[np.ndarray], mine: Sequence[np.ndarray]) -> dict[str, Any]:
    """How far an output of the engine is from the reference.

    Args:
        expected: For each text [D], or [S, D] for its tokens.
        mine: The same of the engine; may be longer, where the rest is zero.

    Returns:
        Of scores (D is 1) the largest difference, and the standard deviation of the reference's own; of vectors the
        least and the mean cosine, and the mean cosine of the reference's vectors of different texts or tokens.
    """
    left = np.concatenate([np.atleast_2d(row) for row in expected])
    right = np.concatenate([np.atleast_2d(row) for row in mine])
    if left.shape[1] == 1:
        return {"max_difference": float(np.abs(left - right).max()), "spread": float(left.std())}
    same, other = cosines(left, right), cosines(left, np.roll(left, 1, axis=0))
    return {"min_cosine": float(same.min()), "mean_cosine": float(same.mean()), "other_cosine": float(other.mean())}


def rows_of_ids(vocab_size: int, longest: int) -> list[np.ndarray]:
    """Random ids of each length, as far as the model takes it."""
    rng = np.random.default_rng(1)
    first = min(_FIRST_WORD, vocab_size // 2)
    return [rng.integers(first, vocab_size, size=min(length, longest), dtype=np.int32) for length in LENGTHS]


def engine_outputs(engine: Engine, rows: Sequence[np.ndarray], names: Sequence[str]) -> Outputs:
    """What the engine makes of the rows, all in one batch, under the names of the reference."""
    if set(names) <= {"vectors", "score"}:
        return {names[0]: list(engine.embed_ids(rows, normalize=False))}
    options = RequestOptions(output=tuple("float32" if name == "vectors" else name for name in names), normalize=False)
    form = engine.answers.choose(options)
    assert isinstance(form, TokenForm)  # as not only vectors are asked for
    found = run_tokens(engine.run, rows, form)
    outputs: Outputs = {}
    if "vectors" in names:
        outputs["vectors"] = list(found["embedding"])
    if "sparse" in names:
        size = engine.limits.vocab_size
        pairs = zip(found["sparse_ids"], found["sparse_weights"], strict=True)
        outputs["sparse"] = [_spread(ids, weights, size) for ids, weights in pairs]
    if "multi" in names:
        counts = found["multi_vector_count"][:, 0]
        outputs["multi"] = [own[:count] for own, count in zip(found["multi_vector"], counts, strict=True)]
    return outputs


def measure(name: str, model: Any, folder: str, note: str, *, task: str = "embed") -> Iterator[Accuracy]:
    """The lines of one checkpoint: each output in each dtype."""
    checkpoint = load_checkpoint(folder)
    expected: Outputs = {}
    for dtype in DTYPES:
        engine = Engine(EngineConfig(checkpoint=folder, task=task, dtype=dtype, device="cpu"), torch.device("cpu"))
        size = engine.limits.vocab_size
        rows = rows_of_ids(size, engine.limits.max_positions)
        expected = expected or reference_outputs(model, checkpoint, rows)
        mine = engine_outputs(engine, rows, tuple(expected))
        for output, values in expected.items():
            padded = [_pad(row, size) for row in values] if output == "sparse" else values
            yield Accuracy(
                f"lazuli {lazuli.__version__}",
                name,
                dtype,
                f"transformers {version('transformers')}, float32",
                output,
                f"{len(rows[0])}-{len(rows[-1])}",
                len(rows),
                note,
                **compare(padded, mine[output]),
            )
        del engine
        gc.collect()


def measure_stand(name: str, folder: Path, layers: int) -> Iterator[Accuracy]:
    """The lines of a published checkpoint, by what stands for it."""
    stand = STANDS[name]
    model = write_model(stand, folder, layers)
    if name == "BAAI/bge-m3":
        write_token_layers(folder, model.config.hidden_size)
    if stand.kind.endswith("ForCausalLM"):
        words = {"type": "WordLevel", "vocab": {"yes": YES, "no": NO}, "unk_token": "no"}
        (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": words}))
    yield from measure(name, model, str(folder), f"random weights, {layers} layers", task=stand.task)


def measure_real() -> Iterator[Accuracy]:
    """The lines of all-MiniLM-L6-v2."""
    from transformers import AutoModel

    folder = str(resolve_checkpoint(REAL))
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    yield from measure(REAL, model, folder, f"its own weights, {model.config.num_hidden_layers} layers")


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--name", default="accuracy", help="file there")
    parser.add_argument("--layers", type=positive, default=4)
    parser.add_argument("--only", nargs="*", choices=[REAL, *STANDS], default=[REAL, *STANDS])
    options = parser.parse_args(arguments)
    quiet: Any = transformers_logging
    quiet.disable_progress_bar()
    lines = []
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            parts = measure_real() if name == REAL else measure_stand(name, Path(folder), options.layers)
            for line in parts:
                lines.append(line)
                write(options.machine, options.name, lines)  # so that a run that is cut off leaves what it has
                print(line.summary(), flush=True)


def _spread(ids: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """[size], from ids that are padded with -1."""
    spread = np.zeros(size, dtype=np.float32)
    spread[ids[ids >= 0]] = weights[ids >= 0]
    return spread


def _pad(row: np.ndarray, size: int) -> np.ndarray:
    padded = np.zeros(size, dtype=np.float32)
    padded[: len(row)] = row
    return padded


if __name__ == "__main__":
    main()
