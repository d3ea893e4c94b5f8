"""Vectors of spans on the GPU against those of the CPU, with documents alone and together."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lazuli.batch import RaggedBatch
from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.outputs.finish import NORMALIZED

sys.path.insert(0, str(Path(__file__).parents[2] / "perf"))
from random_checkpoint import SHAPES, write_checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
# The lengths of the spans of each document, on both sides of the pieces in which a span is summed.
DOCUMENTS = ([5, 1, 64, 1, 65, 1, 129], [40], [1, 1, 1], [200, 3, 63])


@pytest.fixture(scope="module", params=SHAPES, ids=list(SHAPES))
def checkpoint(request, tmp_path_factory):
    return str(write_checkpoint(request.param, tmp_path_factory.mktemp("checkpoint")))


def load(checkpoint, dtype, device):
    return Engine(EngineConfig(checkpoint=checkpoint, dtype=dtype, task="context", pooling="mean"), device)


@pytest.fixture(scope="module")
def gpu_engine(checkpoint):
    return load(checkpoint, "bfloat16", torch.device("cuda", 0))


@pytest.fixture(scope="module")
def rows(gpu_engine):
    rng = np.random.default_rng(0)
    return [rng.integers(gpu_engine.limits.vocab_size, size=sum(spans), dtype=np.int32) for spans in DOCUMENTS]


def embed(engine, rows, documents=DOCUMENTS):
    spans = [np.array(lengths, dtype=np.int32) for lengths in documents]
    batch = RaggedBatch.pack(rows, [NORMALIZED] * len(rows)).with_spans(spans)
    result = engine.step(batch).result()
    return np.concatenate([result[place] for place in np.argsort(batch.order)])


def cosines(left, right):
    return (left * right).sum(axis=1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))


def test_bfloat16_on_the_gpu_against_float32_on_the_cpu(checkpoint, gpu_engine, rows):
    exact = embed(load(checkpoint, "float32", torch.device("cpu")), rows)
    lengths = np.concatenate(DOCUMENTS)
    least = np.where(lengths < 8, 0.995, 0.999)  # on random weights nothing averages the rounding of one token away
    assert (cosines(embed(gpu_engine, rows), exact) >= least).all()


def test_documents_alone_and_together(gpu_engine, rows):
    together = embed(gpu_engine, rows)
    alone = np.concatenate([embed(gpu_engine, [ids], [spans]) for ids, spans in zip(rows, DOCUMENTS, strict=True)])
    assert cosines(alone, together).min() >= 0.999
    assert np.array_equal(embed(gpu_engine, rows), together)


def test_batches_in_flight_do_not_disturb_each_other(gpu_engine, rows):
    spans = [np.array(lengths, dtype=np.int32) for lengths in DOCUMENTS]
    batches = []
    for turn in range(20):
        chosen = [(turn + step) % len(rows) for step in range(1 + turn % len(rows))]
        batch = RaggedBatch.pack([rows[place] for place in chosen], [NORMALIZED] * len(chosen))
        batches.append((chosen, batch.with_spans([spans[place] for place in chosen])))
    expected = [gpu_engine.step(batch).result() for _, batch in batches]
    results = [gpu_engine.step(batch) for _, batch in batches]  # none is waited for
    for result, values in zip(results, expected, strict=True):
        assert all(np.array_equal(mine, other) for mine, other in zip(result.result(), values, strict=True))


def test_the_first_document_finds_a_warm_engine(gpu_engine, rows):
    gpu_engine.warm_up()
    assert embed(gpu_engine, rows).shape == (sum(map(len, DOCUMENTS)), gpu_engine.dimension)
