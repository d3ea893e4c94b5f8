"""The engine on a GPU, with MiniLM's real weights: graphs against eager runs, and both against the CPU."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lazuli.batch import RaggedBatch
from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.graph import Action
from lazuli.options import RequestOptions
from lazuli.service import EmbeddingService

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NAME = "all-MiniLM-L6-v2"
VOCABULARY = 30522
# About a second on any GPU of the last years: far more than launching takes, and nothing is timed.
LONG_KERNEL_CYCLES = 2_000_000_000


def make_engine(**parameters):
    config = EngineConfig(**({"checkpoint": NAME, "dtype": "bfloat16"} | parameters))
    return Engine(config, torch.device("cuda", 0))


@pytest.fixture(scope="module")
def eager():
    return make_engine(max_graphs=0)


@pytest.fixture(scope="module")
def cpu():
    return Engine(EngineConfig(checkpoint=NAME, dtype="float32"), torch.device("cpu"))


@pytest.fixture
def engine():
    return make_engine()


def rows_of(lengths, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(1000, VOCABULARY, size=length, dtype=np.int32) for length in lengths]


def split(num_tokens, num_sequences):
    """Lengths of the sequences, as unequal as 512 positions allow."""
    num_sequences = max(num_sequences, -(-num_tokens // 512))
    lengths = [1] * num_sequences
    left = num_tokens - num_sequences
    for place in range(num_sequences):
        more = min(left, 511, left // 2 + 1 if place < num_sequences - 1 else left)
        lengths[place] += more
        left -= more
    place = 0
    while left:
        more = min(left, 512 - lengths[place])
        lengths[place] += more
        left -= more
        place += 1
    return lengths


def worst_cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def counters(engine):
    return engine._stepper.graphs.counters


class TestGraphs:
    @pytest.mark.parametrize("num_tokens", [1, 16, 17, 63, 64, 65, 127, 128, 129, 2047, 2048, 2049, 4096, 8191, 8192])
    @pytest.mark.parametrize("num_sequences", [1, 2, 3, 4, 5])
    def test_they_equal_eager_runs_at_the_edges_of_buckets(self, engine, eager, num_tokens, num_sequences):
        lengths = split(num_tokens, min(num_sequences, num_tokens))
        assert sum(lengths) == num_tokens
        for seed in range(4):  # eager, capture, replay, replay, each of other ids
            rows = rows_of(lengths, seed)
            mine, reference = engine.embed_ids(rows), eager.embed_ids(rows)
            assert worst_cosine(mine, reference) >= 0.9999
            np.testing.assert_allclose(mine, reference, atol=5e-3)
            np.testing.assert_allclose(np.linalg.norm(mine, axis=1), 1, atol=1e-3)
        seen = counters(engine)
        assert (seen.eager, seen.captured, seen.replayed) == (1, 1, 3)
        assert counters(eager).captured == 0

    def test_larger_batches_run_eagerly(self, engine, eager):
        rows = rows_of(split(8193, 17), 0)
        for _ in range(3):
            assert worst_cosine(engine.embed_ids(rows), eager.embed_ids(rows)) >= 0.9999
        assert (counters(engine).eager, counters(engine).captured) == (3, 0)

    def test_one_graph_serves_every_layout_of_its_bucket(self, engine, eager):
        layouts = [
            [40, 5, 5, 5, 5],
            [40, 1, 1, 1, 2],
            [33, 2, 2, 2, 2, 2, 2, 2],
            [64 - 21, 7, 7, 1, 1, 1, 1, 3],
        ]
        layouts += [[60, 1, 1, 1, 1], [33, 31 - 6, 1, 1, 1, 1, 1, 1]]
        for seed, lengths in enumerate(layouts):
            rows = rows_of(lengths, seed)
            mine, reference = engine.embed_ids(rows), eager.embed_ids(rows)
            assert worst_cosine(mine, reference) >= 0.9999
            np.testing.assert_allclose(np.linalg.norm(mine, axis=1), 1, atol=1e-3)
        seen = counters(engine)
        assert (seen.eager, seen.captured, seen.replayed) == (1, 1, len(layouts) - 1)

    @pytest.mark.parametrize("at_capture", [True, False])
    def test_the_normalise_flags_are_those_of_each_batch(self, engine, eager, at_capture):
        rows = rows_of([9, 9, 9], 0)
        raw, scaled = (eager.embed_ids(rows, normalize=flag) for flag in (False, True))
        for _ in range(2):
            engine.embed_ids(rows, normalize=at_capture)
        for flags in ([True] * 3, [False] * 3, [True, False, True], [False, True, False]):
            batch = RaggedBatch.pack(rows, flags)
            vectors = engine.step(batch).result()
            expected = np.where(np.array(flags)[:, None], scaled, raw)
            np.testing.assert_allclose(vectors, expected, atol=5e-3)
        assert counters(engine).captured == 1

    def test_padding_is_counted(self, engine):
        rows = rows_of([40, 10], 0)
        for _ in range(4):
            engine.embed_ids(rows)
        assert counters(engine).padded_tokens == 3 * 14

    def test_the_least_recently_used_is_evicted_and_captured_again(self, eager):
        engine = make_engine(max_graphs=2)
        cases = [rows_of([length, 3], length) for length in (20, 100, 200, 300)]
        references = [eager.embed_ids(rows) for rows in cases]
        for _ in range(4):
            for rows, reference in zip(cases, references, strict=True):
                for _ in range(2):
                    assert worst_cosine(engine.embed_ids(rows), reference) >= 0.9999
        seen = counters(engine)
        assert len(engine._stepper.graphs) == 2
        assert seen.eager == 4
        assert (seen.captured, seen.evicted) == (16, 14)

    def test_recapture_does_not_eat_the_memory(self):
        engine = make_engine(max_graphs=1)
        cases = [rows_of([length] * 4, length) for length in (20, 100, 200)]

        def cycle():
            for rows in cases:
                for _ in range(2):
                    engine.embed_ids(rows)

        for _ in range(3):
            cycle()
        before = torch.cuda.memory_reserved()
        for _ in range(20):
            cycle()
        assert torch.cuda.memory_reserved() - before <= 64 << 20

    @pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
    @pytest.mark.parametrize("invalidates", [True, False])
    def test_what_fails_to_be_captured_runs_eagerly_from_then_on(self, engine, eager, monkeypatch, invalidates):
        encode = engine._encoder.encode

        def fail_while_capturing(inputs):
            if torch.cuda.is_current_stream_capturing() and len(inputs.input_ids) == 64:
                if invalidates:
                    inputs.input_ids.sum().item()  # synchronises, which is not allowed there
                raise torch.OutOfMemoryError
            return encode(inputs)

        monkeypatch.setattr(engine._encoder, "encode", fail_while_capturing)
        small, large = rows_of([20, 30], 0), rows_of([70, 30], 1)
        for _ in range(4):
            assert worst_cosine(engine.embed_ids(small), eager.embed_ids(small)) >= 0.9999
        assert (counters(engine).failed, counters(engine).captured, counters(engine).eager) == (1, 0, 4)
        for _ in range(4):
            assert worst_cosine(engine.embed_ids(large), eager.embed_ids(large)) >= 0.9999
            assert worst_cosine(engine.embed_ids(small), eager.embed_ids(small)) >= 0.9999
        assert (counters(engine).failed, counters(engine).captured, counters(engine).replayed) == (1, 1, 3)


class TestFloat32:
    """Its attention reads the layout on the host, so that a graph would serve one layout alone."""

    def test_every_layout_is_right_and_nothing_is_captured(self, cpu):
        engine = make_engine(dtype="float32")
        for seed, lengths in enumerate([[40, 20], [40, 20], [10, 50], [30, 30], [59, 1], [33, 27]]):
            rows = rows_of(lengths, seed)
            mine, reference = engine.embed_ids(rows), cpu.embed_ids(rows)
            assert worst_cosine(mine, reference) >= 1 - 1e-5
        assert (counters(engine).eager, counters(engine).captured) == (6, 0)

    def test_nor_with_that_attention_in_bfloat16(self, eager):
        engine = make_engine(attention="sdpa")
        for seed, lengths in enumerate([[40, 20], [40, 20], [10, 50], [30, 30]]):
            rows = rows_of(lengths, seed)
            assert worst_cosine(engine.embed_ids(rows), eager.embed_ids(rows)) >= 0.999
        assert counters(engine).captured == 0


class TestNoWaiting:
    @pytest.mark.parametrize("action", [Action.EAGER, Action.CAPTURE, Action.REPLAY])
    def test_step_returns_while_the_device_is_busy(self, engine, eager, action):
        rows = rows_of([20, 30], 0)
        eager_vectors = eager.embed_ids(rows)
        # Another bucket first: kernels are loaded, and pinned buffers exist, before the device is held up.
        for _ in range(3):
            engine.embed_ids(rows_of([100, 90], 1))
        for _ in range([Action.EAGER, Action.CAPTURE, Action.REPLAY].index(action)):
            engine.embed_ids(rows)
        batch = RaggedBatch.pack(rows, [True, True])
        with torch.cuda.stream(engine._stepper._stream):
            torch.cuda._sleep(LONG_KERNEL_CYCLES)
        result = engine.step(batch)
        assert not result.is_ready()
        vectors = result.result()
        assert result.is_ready()
        assert worst_cosine(vectors, eager_vectors[batch.order]) >= 0.9999

    def test_many_steps_are_queued_behind_each_other(self, engine, eager):
        cases = [rows_of([5 + number, 40], number) for number in range(12)]
        references = [eager.embed_ids(rows) for rows in cases]
        for rows in cases[:3]:
            engine.embed_ids(rows)
        batches = [RaggedBatch.pack(rows, [True] * 2) for rows in cases]
        with torch.cuda.stream(engine._stepper._stream):
            torch.cuda._sleep(LONG_KERNEL_CYCLES)
        results = [engine.step(batch) for batch in batches]
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
        assert len(engine._stepper._staging_pool._free) <= 7


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
        engine, eager = make_engine(pooling=pooling), make_engine(pooling=pooling, max_graphs=0)
        rows = rows_of([9, 30, 2], 0)
        for _ in range(4):
            assert worst_cosine(engine.embed_ids(rows), eager.embed_ids(rows)) >= 0.9999


class TestLimits:
    def test_few_sequences_a_batch(self):
        engine = make_engine(max_batch_sequences=3)
        engine.warm_up()
        assert engine.embed_ids(rows_of([5, 6, 7], 0)).shape == (3, 384)

    def test_warm_up_leaves_graphs_behind(self, engine):
        engine.warm_up()
        assert counters(engine).captured >= 3


class Sender:
    def __init__(self):
        self.parts, self.error, self.ended = [], None, threading.Event()

    def send(self, part, *, final):
        self.parts.append(part)
        if final:
            self.ended.set()

    def send_error(self, error):
        self.error = error
        self.ended.set()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_service_under_32_threads(eager, streaming):
    service = EmbeddingService(
        EngineConfig(checkpoint=NAME, device="cuda", token_budget=512, max_queued_tokens=2048),
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
        return np.concatenate([part.embedding for part in sender.parts])[order]

    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(ask, range(len(cases))))
    service.close()
    for vectors, reference in zip(answers, references, strict=True):
        assert vectors.shape == reference.shape
        assert worst_cosine(vectors, reference) >= 0.9999
