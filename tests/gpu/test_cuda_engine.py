"""The engine on a GPU, with MiniLM's real weights if they are there, against the CPU; and that nothing waits for it."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from lazuli.batch import RaggedBatch
from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.graph import Action
from lazuli.options import RequestOptions
from lazuli.service import EmbeddingService
from random_checkpoint import default_or_random

from .random_rows import rows_of, worst_cosine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NAME = default_or_random()
# About a second on any GPU of the last years: far more than launching takes, and nothing is timed.
LONG_KERNEL_CYCLES = 2_000_000_000


def make_engine(**parameters):
    config = EngineConfig(**({"checkpoint": NAME, "dtype": "bfloat16"} | parameters))
    return Engine(config, torch.device("cuda", 0))


@pytest.fixture(scope="module")
def eager():
    return make_engine(graph_capture="off")


@pytest.fixture(scope="module")
def cpu():
    return Engine(EngineConfig(checkpoint=NAME, dtype="float32"), torch.device("cpu"))


@pytest.fixture
def engine():
    return make_engine()


def counters(engine):
    return engine.graph_counters


class TestFloat16:
    def test_vectors_are_near_those_of_the_cpu(self, cpu):
        engine = make_engine(dtype="float16")
        engine.warm_up()
        for seed, lengths in enumerate([[40, 20], [5], [200, 3, 3], [128] * 30]):
            rows = rows_of(lengths, seed)
            assert worst_cosine(engine.embed_ids(rows), cpu.embed_ids(rows)) >= 0.9999


class TestFloat32:
    """Its attention reads the layout on the host, so that a graph would serve one layout alone."""

    def test_every_layout_is_right_and_nothing_is_captured(self, cpu):
        engine = make_engine(dtype="float32")
        for seed, lengths in enumerate([[40, 20], [40, 20], [10, 50], [30, 30], [59, 1], [33, 27]]):
            rows = rows_of(lengths, seed)
            mine, reference = engine.embed_ids(rows), cpu.embed_ids(rows)
            assert worst_cosine(mine, reference) >= 1 - 1e-5
        assert (counters(engine).above, counters(engine).captured) == (6, 0)

    def test_nor_with_that_attention_in_bfloat16(self, eager):
        engine = make_engine(attention="sdpa")
        for seed, lengths in enumerate([[40, 20], [40, 20], [10, 50], [30, 30]]):
            rows = rows_of(lengths, seed)
            assert worst_cosine(engine.embed_ids(rows), eager.embed_ids(rows)) >= 0.999
        assert counters(engine).captured == 0


def hold_up(engine):
    """Keep the engine's stream busy; the event comes when it is free."""
    with torch.cuda.stream(engine._stepper._stream):
        torch.cuda._sleep(LONG_KERNEL_CYCLES)
        held = torch.cuda.Event()
        held.record()
    return held


@contextmanager
def nothing_may_wait():
    """Operations of torch that wait for the device raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not detect all of them
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class TestNoWaiting:
    @pytest.mark.parametrize("action", [Action.EAGER, Action.CAPTURE, Action.REPLAY])
    def test_step_returns_while_the_device_is_busy(self, eager, action):
        rows = rows_of([20, 30], 0)
        eager_vectors = eager.embed_ids(rows)
        make_engine(graph_capture="lazy").embed_ids(rows)  # compiles what a bucket of these sizes needs
        engine = make_engine(graph_capture="lazy")
        # Another bucket first: kernels are loaded, and pinned buffers exist, before the device is held up.
        for _ in range(3):
            engine.embed_ids(rows_of([100, 90], 1))
        for _ in range([Action.EAGER, Action.CAPTURE, Action.REPLAY].index(action)):
            engine.embed_ids(rows)
        batch = RaggedBatch.pack(rows, [True, True])
        held = hold_up(engine)
        with nothing_may_wait():
            result = engine.step(batch)
        assert not held.query()  # nor has the step waited for the device in a way that torch does not know of
        assert not result.is_ready()
        vectors = result.result()
        assert result.is_ready()
        assert worst_cosine(vectors, eager_vectors[batch.order]) >= 0.9999

    def test_so_it_does_while_captures_wait_and_captures_do_not_wait_either(self, engine, eager):
        rows = rows_of([20, 30], 0)
        eager_vectors = eager.embed_ids(rows)
        engine.embed_ids(rows_of([100, 90], 1))
        batch = RaggedBatch.pack(rows, [True, True])
        held = hold_up(engine)
        with nothing_may_wait():
            results = [engine.step(batch)]  # eager, or by the other graph
            assert counters(engine).captured == 1
            engine.use_idle_time(quiet=True)
            assert counters(engine).captured == 2
            results.append(engine.step(batch))
        assert not held.query()
        assert counters(engine).replayed == 1
        assert not any(result.is_ready() for result in results)
        for result in results:
            assert worst_cosine(result.result(), eager_vectors[batch.order]) >= 0.9999

    def test_many_steps_are_queued_behind_each_other(self, engine, eager):
        cases = [rows_of([5 + number, 40], number) for number in range(12)]
        references = [eager.embed_ids(rows) for rows in cases]
        for rows in cases[:3]:
            engine.embed_ids(rows)
        batches = [RaggedBatch.pack(rows, [True] * 2) for rows in cases]
        held = hold_up(engine)
        results = [engine.step(batch) for batch in batches]
        assert not held.query()
        for result, batch, reference in zip(results, batches, references, strict=True):
            assert worst_cosine(result.result(), reference[batch.order]) >= 0.9999


class TestPinnedBuffers:
    def test_results_taken_by_many_threads_are_their_own(self, engine, eager):
        cases = [rows_of([3 + number % 50, 64, 7], number) for number in range(40)]
        references = [eager.embed_ids(rows) for rows in cases]
        batches = [RaggedBatch.pack(rows, [True] * 3) for rows in cases]
        kept, slots, lock = [], threading.Semaphore(6), threading.Lock()

        def take(result, number):
            vectors = result.result()
            slots.release()
            with lock:
                kept.append((number, vectors))

        with ThreadPoolExecutor(6) as threads:
            for number in [*range(40)] * 10:
                slots.acquire()
                threads.submit(take, engine.step(batches[number]), number)
        assert len(kept) == 400
        for number, vectors in kept:  # looked at last: a buffer used again too early would show
            assert worst_cosine(vectors, references[number][batches[number].order]) >= 0.9999
        assert len(engine._stepper._result_pool._free) <= 7
        assert len(engine._stepper._input_buffer.staging_pool._free) <= 7


class TestNumbers:
    LENGTHS = (1, 2, 3, 8, 17, 33, 64, 65, 128, 129, 256, 257, 511, 512)

    def test_bfloat16_follows_float32_on_the_cpu(self, engine, cpu):
        rows = rows_of(self.LENGTHS, 3)
        reference = cpu.embed_ids(rows)
        for _ in range(3):
            assert worst_cosine(engine.embed_ids(rows), reference) >= 0.999

    def test_alone_is_equal_to_batched(self, engine):
        rows = rows_of(self.LENGTHS, 3)
        together = engine.embed_ids(rows)
        for row, vector in zip(rows, together, strict=True):
            for _ in range(3):
                assert worst_cosine(engine.embed_ids([row]), vector[None]) >= 0.9999

    @pytest.mark.parametrize("pooling", ["cls", "last"])
    def test_other_pooling_through_graphs(self, pooling):
        engine, eager = make_engine(pooling=pooling), make_engine(pooling=pooling, graph_capture="off")
        rows = rows_of([9, 30, 2], 0)
        for _ in range(4):
            assert worst_cosine(engine.embed_ids(rows), eager.embed_ids(rows)) >= 0.9999


class TestLimits:
    def test_few_sequences_a_batch(self):
        engine = make_engine(max_batch_sequences=3)
        engine.warm_up()
        assert engine.embed_ids(rows_of([5, 6, 7], 0)).shape == (3, 384)

    def test_warm_up_leaves_graphs_behind(self, tmp_path):
        engine = make_engine(cache_dir=str(tmp_path))
        engine.warm_up()
        assert counters(engine).captured >= 3


class Sender:
    def __init__(self):
        self.parts, self.error, self.ended = [], None, threading.Event()

    def prepare(self, part):
        pass

    def send(self, part, *, final):
        self.parts.append(part)
        if final:
            self.ended.set()

    def send_error(self, error):
        self.error = error
        self.ended.set()

    def is_cancelled(self):
        return False


@pytest.mark.parametrize("streaming", [False, True])
def test_a_service_under_32_threads(eager, streaming, tmp_path):
    service = EmbeddingService(
        EngineConfig(
            checkpoint=NAME,
            device="cuda",
            token_budget=512,
            max_queued_tokens=2048,
            graph_start_s=0.0,  # so that graphs are captured while requests come in
            graph_busy_ms=900,
            cache_dir=str(tmp_path),
        ),
        streaming=streaming,
    )
    rng = np.random.default_rng(0)
    cases = [rows_of(rng.integers(1, 200, size=rng.integers(1, 9)), seed) for seed in range(320)]
    references = [eager.embed_ids(rows) for rows in cases]

    def ask(number):
        rows, sender = cases[number], Sender()
        mask = np.arange(max(map(len, rows))) < np.array([len(row) for row in rows])[:, None]
        input_ids = np.zeros(mask.shape, dtype=np.int32)
        input_ids[mask] = np.concatenate(rows)
        service.submit(input_ids, mask.astype(np.int8), RequestOptions(), sender)
        assert sender.ended.wait(60)
        assert sender.error is None
        order = np.argsort(np.concatenate([part.index for part in sender.parts]))
        return np.concatenate([part.outputs["embedding"] for part in sender.parts])[order]

    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(ask, range(len(cases))))
    service.close()
    seen = counters(service.engine)
    assert seen.captured >= 5
    assert seen.replayed >= 5
    for vectors, reference in zip(answers, references, strict=True):
        assert vectors.shape == reference.shape
        assert worst_cosine(vectors, reference) >= 0.9999
