"""CUDA graphs against eager runs, with MiniLM's weights: at every bucket's edges, and whenever they are captured.

A graph and an eager run of the same padded sizes are equal bit for bit: they launch the same kernels. An eager run of
the exact sizes may pick other kernels for its products: there the cosine is at least 0.9999, as between a text alone
and in a batch.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lazuli.batch import RaggedBatch
from lazuli.buckets import Bucket, BucketTable
from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.outputs.finish import Finish
from random_checkpoint import default_or_random, write_checkpoint

from .random_rows import rows_of, worst_cosine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NAME = default_or_random()
LONGEST = 512
MAX_TOKENS = 8192
TABLE = BucketTable(max_tokens=MAX_TOKENS, max_sequences=512, max_seqlen=LONGEST)
MIN_COSINE = 0.9999


def make_engine(**parameters):
    defaults = {"checkpoint": NAME, "dtype": "bfloat16", "attention": "triton", "graph_max_tokens": MAX_TOKENS}
    return Engine(EngineConfig(**(defaults | parameters)), torch.device("cuda", 0))


@pytest.fixture(scope="module")
def eager():
    return make_engine(graph_capture="off")


@pytest.fixture(scope="module")
def shared():
    """An engine for tests that mind no graphs of others."""
    return make_engine(graph_capture="lazy", graph_memory_mb=8192)


@pytest.fixture
def lazy():
    return make_engine(graph_capture="lazy")


@pytest.fixture
def idle():
    return make_engine()


def pack(lengths, seed):
    rows = rows_of(lengths, seed)
    return RaggedBatch.pack(rows, [True] * len(rows))


def run(engine, batch):
    return engine.step(batch).result()


def lengths_within(sizes):
    """Lengths of a batch of exactly so many tokens, and as many sequences and as long a one as that allows."""
    sequences = max(min(sizes.num_sequences, sizes.num_tokens), -(-sizes.num_tokens // sizes.max_seqlen))
    lengths = [1] * sequences
    left = sizes.num_tokens - sequences
    for place in range(sequences):
        more = min(left, sizes.max_seqlen - 1)
        lengths[place] += more
        left -= more
    assert left == 0
    return lengths


def edges(bucket):
    """The bucket's own sizes, one token fewer, one sequence fewer, and one token more."""
    yield bucket
    yield Bucket(bucket.num_tokens - 1, min(bucket.num_sequences, bucket.num_tokens - 1), bucket.max_seqlen)
    if (bucket.num_sequences - 1) * bucket.max_seqlen >= bucket.num_tokens:
        yield Bucket(bucket.num_tokens, bucket.num_sequences - 1, bucket.max_seqlen)
    if bucket.num_tokens < min(MAX_TOKENS, bucket.num_sequences * bucket.max_seqlen):
        longest = min(LONGEST, bucket.max_seqlen + 1)
        yield Bucket(bucket.num_tokens + 1, bucket.num_sequences, longest)


class TestEquality:
    @pytest.mark.parametrize("bucket", TABLE.buckets, ids=lambda b: f"{b.num_tokens}x{b.num_sequences}x{b.max_seqlen}")
    def test_at_the_edges_of_every_bucket(self, shared, eager, bucket):
        for number, sizes in enumerate(edges(bucket)):
            lengths = lengths_within(sizes)
            for turn in range(2):  # eager and captured, by other ids
                assert np.isfinite(run(shared, pack(lengths, 100 + turn))).all()
            batch = pack(lengths, number)
            before = shared.graph_counters.replayed
            replayed = run(shared, batch)
            assert shared.graph_counters.replayed == before + 1
            exact = run(eager, batch)
            assert worst_cosine(replayed, exact) >= MIN_COSINE
            np.testing.assert_allclose(replayed, exact, atol=5e-3)
            np.testing.assert_allclose(np.linalg.norm(replayed, axis=1), 1, atol=1e-3)
        assert eager.graph_counters.captured == 0

    @pytest.mark.parametrize("bucket", TABLE.coarse, ids=lambda b: f"{b.num_tokens}x{b.num_sequences}x{b.max_seqlen}")
    def test_bit_for_bit_with_an_eager_run_of_the_padded_sizes(self, lazy, bucket):
        batch = pack(lengths_within(Bucket(bucket.num_tokens - 1, bucket.num_sequences, bucket.max_seqlen)), 0)
        first = run(lazy, batch)
        assert lazy.graph_counters.missed == 1
        for _ in range(3):
            np.testing.assert_array_equal(run(lazy, batch), first)
        assert (lazy.graph_counters.missed, lazy.graph_counters.replayed) == (1, 3)

    def test_larger_batches_run_eagerly(self, lazy, eager):
        batch = pack([LONGEST] * 16 + [1], 0)
        for _ in range(3):
            np.testing.assert_array_equal(run(lazy, batch), run(eager, batch))
        assert (lazy.graph_counters.above, lazy.graph_counters.captured) == (3, 0)

    def test_one_graph_serves_every_layout_of_its_bucket(self, lazy, eager):
        layouts = [[100, 5, 5, 5, 5], [100, 1, 1, 1, 1], [33, 2, 2, 2, 2, 2, 60], [21, 43, 7, 7, 1, 1, 1, 1, 23]]
        layouts += [[7] * 14, [60, 1, 1, 1, 50], [97]]
        for seed, lengths in enumerate([layouts[0], *layouts]):
            assert 96 < sum(lengths) <= 128
            batch = pack([*lengths, 1, 1], seed)
            assert worst_cosine(run(lazy, batch), run(eager, batch)) >= MIN_COSINE
        assert (lazy.graph_counters.missed, lazy.graph_counters.captured) == (1, 1)

    @pytest.mark.parametrize("at_capture", [True, False])
    def test_the_normalise_flags_are_those_of_each_batch(self, lazy, eager, at_capture):
        rows = rows_of([9, 9, 9], 0)
        raw, scaled = (eager.embed_ids(rows, normalize=flag) for flag in (False, True))
        for _ in range(2):
            lazy.embed_ids(rows, normalize=at_capture)
        for flags in ([True] * 3, [False] * 3, [True, False, True], [False, True, False]):
            vectors = run(lazy, RaggedBatch.pack(rows, flags))
            expected = np.where(np.array(flags)[:, None], scaled, raw)
            np.testing.assert_allclose(vectors, expected, atol=5e-3)
        assert lazy.graph_counters.captured == 1

    def test_vectors_of_other_types_come_from_the_same_graph(self, lazy, eager):
        rows = rows_of([9, 9, 9, 9], 0)
        raw = eager.embed_ids(rows, normalize=False)
        codes = [Finish(False, "float16").code, Finish(False, "ubinary").code, Finish(False, "binary", 64).code, 0]
        for _ in range(2):
            lazy.embed_ids(rows)
        for shift in range(4):
            chosen = codes[shift:] + codes[:shift]
            vectors = run(lazy, RaggedBatch.pack(rows, chosen))
            for row, vector, code in zip(raw, vectors, chosen, strict=True):
                finish = Finish.from_code(code)
                if finish.encoding == "float32":
                    np.testing.assert_allclose(vector, row, atol=5e-3)
                elif finish.encoding == "float16":
                    np.testing.assert_allclose(vector.view(np.float16)[: len(row)], row, atol=5e-3)
                else:
                    kept = finish.dimensions or len(row)
                    encoded = vector.view(np.uint8)[: kept // 8] ^ (128 if finish.encoding == "binary" else 0)
                    wrong = np.unpackbits(encoded) != (row[:kept] > 0)
                    assert (np.abs(row[:kept][wrong]) < 5e-3).all()
        assert lazy.graph_counters.captured == 1

    def test_all_graphs_together(self, eager):
        """They share memory: none may leave anything behind for another, in any order."""
        engine = make_engine(graph_memory_mb=8192)
        for bucket in reversed(TABLE.buckets):
            assert engine._stepper.capture(bucket)
        batches = [pack(lengths_within(bucket), number) for number, bucket in enumerate(TABLE.buckets)]
        expected = [run(eager, batch) for batch in batches]
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(len(batches))
            for first in range(0, len(order), 4):  # several in flight
                places = order[first : first + 4]
                results = [engine.step(batches[place]) for place in places]
                for place, result in zip(places, results, strict=True):
                    assert worst_cosine(result.result(), expected[place]) >= MIN_COSINE
        assert engine.graph_counters.replayed == 3 * len(batches)


class TestEviction:
    def test_the_least_recently_used_is_evicted_and_captured_again(self, eager):
        engine = make_engine(graph_capture="lazy", max_graphs=2)
        batches = [pack([length, 3], length) for length in (20, 100, 200, 300)]
        references = [run(eager, batch) for batch in batches]
        for _ in range(4):
            for batch, reference in zip(batches, references, strict=True):
                for _ in range(3):
                    assert worst_cosine(run(engine, batch), reference) >= MIN_COSINE
        seen = engine.graph_counters
        assert (seen.graphs, seen.missed, seen.captured, seen.evicted, seen.replayed) == (2, 16, 16, 14, 32)

    def test_down_to_none_and_again(self, eager):
        engine = make_engine(graph_capture="lazy", max_graphs=1)
        batch = pack([30, 3], 0)
        for _ in range(3):
            for _ in range(3):
                assert worst_cosine(run(engine, batch), run(eager, batch)) >= MIN_COSINE
            engine._stepper.limit(16)
            assert engine.graph_counters.graphs == 0
            engine._stepper.graphs.table = TABLE

    def test_recapture_does_not_eat_the_memory(self):
        engine = make_engine(graph_capture="lazy", max_graphs=1)
        batches = [pack([length] * 4, length) for length in (20, 100, 200)]

        def cycle():
            for batch in batches:
                for _ in range(2):
                    run(engine, batch)

        for _ in range(3):
            cycle()
        before = torch.cuda.memory_reserved()
        for _ in range(20):
            cycle()
        assert torch.cuda.memory_reserved() - before <= 64 << 20

    def test_what_does_not_fit_runs_eagerly(self, tmp_path, eager):
        engine = make_engine(graph_memory_mb=24, cache_dir=str(tmp_path))
        engine.warm_up()
        assert engine.graph_counters.graph_bytes <= 24 << 20
        assert engine.graph_counters.failed >= 1
        batch = pack([LONGEST] * 16, 0)
        assert worst_cosine(run(engine, batch), run(eager, batch)) >= MIN_COSINE


class TestFailures:
    @pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
    @pytest.mark.parametrize("invalidates", [True, False])
    @pytest.mark.parametrize("capture", ["idle", "lazy"])
    def test_what_fails_to_be_captured_runs_eagerly_from_then_on(self, eager, monkeypatch, invalidates, capture):
        engine = make_engine(graph_capture=capture)
        encode = engine._encoder.encode

        def fail_while_capturing(inputs):
            if torch.cuda.is_current_stream_capturing() and len(inputs.input_ids) <= 96:
                if invalidates:
                    inputs.input_ids.sum().item()  # synchronises, which is not allowed there
                raise torch.OutOfMemoryError
            return encode(inputs)

        monkeypatch.setattr(engine._encoder, "encode", fail_while_capturing)
        small, large = rows_of([20, 30], 0), rows_of([400, 300], 1)
        for _ in range(4):
            assert worst_cosine(engine.embed_ids(small), eager.embed_ids(small)) >= MIN_COSINE
        assert (engine.graph_counters.failed, engine.graph_counters.captured) == (1, 0)
        assert engine.graph_counters.missed == 4
        for _ in range(4):
            assert worst_cosine(engine.embed_ids(large), eager.embed_ids(large)) >= MIN_COSINE
            assert worst_cosine(engine.embed_ids(small), eager.embed_ids(small)) >= MIN_COSINE
        assert (engine.graph_counters.failed, engine.graph_counters.captured) == (1, 1)

    def test_one_that_only_fails_the_first_time_is_captured(self, eager, idle, monkeypatch):
        encode, failures = idle._encoder.encode, []

        def fail_once(inputs):
            if torch.cuda.is_current_stream_capturing() and not failures:
                failures.append(1)
                raise RuntimeError("a kernel had to be loaded")
            return encode(inputs)

        monkeypatch.setattr(idle._encoder, "encode", fail_once)
        rows = rows_of([20, 30], 0)
        for _ in range(3):
            assert worst_cosine(idle.embed_ids(rows), eager.embed_ids(rows)) >= MIN_COSINE
        assert (idle.graph_counters.captured, idle.graph_counters.failed, idle.graph_counters.replayed) == (1, 0, 2)


class TestIdleTime:
    def test_a_larger_graph_stands_in_until_its_own_is_captured(self, idle, eager):
        assert idle._stepper.capture(TABLE.find(Bucket(200, 1, 200)))
        batch = pack([150], 0)
        for _ in range(2):
            assert worst_cosine(run(idle, batch), run(eager, batch)) >= MIN_COSINE
        assert (idle.graph_counters.stood_in, idle.graph_counters.captured) == (2, 1)
        assert idle.use_idle_time(quiet=True) is False
        assert worst_cosine(run(idle, batch), run(eager, batch)) >= MIN_COSINE
        assert (idle.graph_counters.replayed, idle.graph_counters.captured) == (1, 2)

    def test_captures_between_steps_in_flight_disturb_none(self, idle, eager):
        """The capture queues a run of its own between batches, on the same static inputs."""
        cases = [pack([5 + 3 * number, 40], number) for number in range(40)]
        expected = [run(eager, batch) for batch in cases]
        for turn in range(3):
            for first in range(0, len(cases), 3):
                places = range(first, min(first + 3, len(cases)))
                results = []
                for place in places:
                    results.append(idle.step(cases[place]))
                    idle.use_idle_time(quiet=True)
                for place, result in zip(places, results, strict=True):
                    assert worst_cosine(result.result(), expected[place]) >= MIN_COSINE, (turn, place)
        assert idle.graph_counters.captured >= 4

    def test_another_thread_may_use_idle_time(self, idle, eager):
        """As in a benchmark that steps the engine of a service; a capture must not record the steps of others."""
        cases = [pack([1 + number % 300, 9], number) for number in range(120)]
        expected = [run(eager, batch) for batch in cases]
        done = []

        def capture():
            while not done:
                idle.use_idle_time(quiet=True)

        with ThreadPoolExecutor(1) as thread:
            capturing = thread.submit(capture)
            try:
                for batch, reference in zip(cases, expected, strict=True):
                    assert worst_cosine(run(idle, batch), reference) >= MIN_COSINE
            finally:
                done.append(True)
            capturing.result()
        assert idle.graph_counters.captured >= 4


class TestProfile:
    def test_the_next_start_has_what_was_used_and_does_not_measure_again(self, tmp_path, monkeypatch):
        first = make_engine(cache_dir=str(tmp_path), graph_max_tokens=None, token_budget=4096)
        first.warm_up()
        limit = first._stepper.graphs.table.max_tokens
        lengths = [150, 3]
        for _ in range(3):
            run(first, pack(lengths, 0))
        bucket = first._stepper.graphs.table.find(Bucket(153, 2, 150))
        first.close()
        second = make_engine(cache_dir=str(tmp_path), graph_max_tokens=None, token_budget=4096)
        monkeypatch.setattr(second._stepper, "time_launch", None)
        second.warm_up()
        assert second._stepper.graphs.table.max_tokens == limit
        assert bucket in second._stepper.graphs
        run(second, pack(lengths, 0))
        assert second.graph_counters.stood_in == 0

    def test_every_batch_is_replayed_after_the_start(self, tmp_path):
        engine = make_engine(cache_dir=str(tmp_path))
        engine.warm_up()
        missed = engine.graph_counters.missed
        rng = np.random.default_rng(0)
        for _ in range(100):
            lengths = rng.integers(1, LONGEST + 1, size=rng.integers(1, 16))
            run(engine, pack(lengths, 0))
        assert engine.graph_counters.missed == missed


@pytest.mark.parametrize("shape", ["qwen3-0.6b-bidirectional", "bge-m3"])
def test_memory_of_all_graphs_at_a_budget_of_16384_tokens(shape, tmp_path):
    """All that the device has less than after loading: both pools of torch, and what the driver takes for graphs."""
    folder = write_checkpoint(shape, tmp_path / shape)
    torch.cuda.empty_cache()
    config = EngineConfig(
        checkpoint=str(folder),
        dtype="bfloat16",
        graph_max_tokens=16384,
        graph_memory_mb=3000,
        graph_start_s=0.0,
        cache_dir=str(tmp_path / "cache"),
    )
    engine = Engine(config, torch.device("cuda", 0))
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    engine.warm_up()
    graphs = engine._stepper.graphs
    for bucket in reversed(graphs.table.buckets):
        if bucket not in graphs:
            assert engine._stepper.capture(bucket)
    torch.cuda.synchronize()
    assert len(graphs) == len(graphs.table.buckets) <= 100
    assert engine.graph_counters.evicted == 0
    taken = free - torch.cuda.mem_get_info()[0]
    print(f"{shape}: {taken / 2**20:.0f} MB, {engine.graph_counters}")
    assert taken <= 3 << 30
