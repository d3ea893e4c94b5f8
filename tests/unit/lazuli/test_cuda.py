"""The CUDA stepper without a GPU: torch's CUDA functions are replaced by ones that compute at once, on the CPU.

That shows which graph runs when, on which inputs, and that nothing is lost when one fails. What real graphs compute is
tested in `tests/gpu`.
"""

import contextlib
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lazuli import recorder
from lazuli.batch import RaggedBatch
from lazuli.buckets import Bucket, BucketTable
from lazuli.cuda import CudaStepper, dummy_batch
from lazuli.encoder import Encoder
from lazuli.graph import GraphCache
from lazuli.graph_keeper import GraphKeeper
from lazuli.graph_profile import ProfileFile
from lazuli.lazy_tensors import Computed
from lazuli.models.base import ModelShape

CPU = torch.device("cpu")
TABLE = BucketTable(max_tokens=1024, max_sequences=64, max_seqlen=512)


class FakeStream:
    def __init__(self, device=None):
        self.waited = 0

    def synchronize(self):
        self.waited += 1


class FakeEvent:
    def __init__(self, blocking=False):
        pass

    def record(self):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass


class FakeCuda:
    """Counts what a device would be asked for."""

    def __init__(self):
        self.pools = 0
        self.free = 1 << 30
        self.reserved = 0
        self.run_bytes = 100
        self.pool_bytes = {}
        self.capturing = None
        self.live = {}  # pool -> graphs
        self.registered = weakref.WeakSet()

    def new_pool(self):
        self.pools += 1
        return (0, self.pools)


class FakeGraph:
    """What `FakeModel` did within the capture is done again at each replay."""

    cuda: FakeCuda

    def __init__(self):
        self.again = None

    def register_generator_state(self, generator):
        self.cuda.registered.add(self)

    def capture_begin(self, pool, capture_error_mode):
        # Or torch allocates, and a failure of that ends the process.
        assert self.cuda.registered - {self}
        # As torch does: a pool whose last graph is gone is not to be used again.
        assert self.cuda.live.get(pool, 1) > 0
        self.pool = pool
        self.cuda.capturing = self

    def capture_end(self):
        self.cuda.capturing = None
        self.cuda.live[self.pool] = self.cuda.live.get(self.pool, 0) + 1
        self.cuda.reserved += 1000
        self.cuda.pool_bytes[self.pool] = self.cuda.pool_bytes.get(self.pool, 0) + 1000
        self.cuda.free -= 1000 + self.cuda.run_bytes

    def replay(self):
        self.again()

    def __del__(self):
        if hasattr(self, "pool") and self.pool in self.cuda.live:
            self.cuda.live[self.pool] -= 1


class FakeEncoder(Encoder):
    """A vector is (mean id, mean position, 1); in a capture the vectors are only promised."""

    def __init__(self, cuda):
        super().__init__(FakeModel(), "mean", capturable=True)
        self.cuda = cuda
        self.runs = []
        self.planned = []
        self.failures = []

    plans = True

    def plan(self, inputs):
        assert self.cuda.capturing is None
        self.planned.append((len(inputs.input_ids), len(inputs.attention.cu_seqlens_cpu) - 1))

    def encode(self, inputs):
        graph = self.cuda.capturing
        if graph is None:
            self.runs.append(len(inputs.input_ids))
            return super().encode(inputs)
        if self.failures:
            raise self.failures.pop()
        output = torch.full((len(inputs.finish), 3), torch.nan)
        graph.again = lambda: output.copy_(Encoder.encode(self, inputs))
        return output


class FakeModel:
    shape = ModelShape(hidden_size=3, head_dim=1, vocab_size=1000, max_positions=512)

    def forward(self, input_ids, position_ids, metadata, wanted=None):
        return torch.stack([input_ids, position_ids, torch.ones_like(input_ids)], dim=1).float()


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    FakeGraph.cuda = fake
    replacements = {
        "Stream": FakeStream,
        "stream": lambda stream: contextlib.nullcontext(),
        "Event": FakeEvent,
        "CUDAGraph": FakeGraph,
        "device": lambda device: contextlib.nullcontext(),
        "default_generators": {CPU.index: torch.default_generator},
        "graph_pool_handle": fake.new_pool,
        "synchronize": lambda device: None,
        "mem_get_info": lambda device: (fake.free, 1 << 31),
        "memory_reserved": lambda device: fake.reserved,
        "memory_snapshot": lambda pool, include_traces: [{"total_size": fake.pool_bytes.get(pool, 0)}],
        "memory_allocated": lambda device: 0,
        "max_memory_allocated": lambda device: 4096,
        "reset_peak_memory_stats": lambda device: None,
    }
    for name, replacement in replacements.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    monkeypatch.setattr(recorder, "_SEGMENT_BYTES", 0)
    return fake


@pytest.fixture
def make(cuda):
    def make(capture="idle", max_graphs=100, max_bytes=1 << 20):
        encoder = FakeEncoder(cuda)
        graphs = GraphCache(TABLE, capture=capture, max_graphs=max_graphs, max_bytes=max_bytes)
        turn = threading.Lock()
        turn.acquire()  # the tests step
        return CudaStepper(encoder, CPU, graphs, max_tokens=2048, max_sequences=64, turn=turn), encoder

    return make


def pack(*lengths, first=1):
    rows = [np.arange(first, first + length, dtype=np.int32) for length in lengths]
    return RaggedBatch.pack(rows, [False] * len(rows))


def expected(batch):
    ids = np.split(batch.input_ids, batch.cu_seqlens[1:-1])
    return np.array([[row.mean(), (len(row) - 1) / 2, 1] for row in ids], dtype=np.float32)


def check(stepper, batch):
    vectors = stepper.step(batch).result()
    np.testing.assert_allclose(vectors, expected(batch), rtol=1e-5)


def own(*lengths):
    return TABLE.find(Bucket(sum(lengths), len(lengths), max(lengths)))


class TestSteps:
    def test_idle(self, make):
        stepper, encoder = make()
        check(stepper, pack(20, 3))
        assert encoder.runs == [own(20, 3).num_tokens]
        assert stepper.capture(own(20, 3))
        for first in (5, 9):
            check(stepper, pack(19, 2, first=first))
        check(stepper, pack(10, 9, 8, first=3))
        assert stepper.graphs.counters.replayed == 3
        assert encoder.runs == [own(20, 3).num_tokens]

    def test_lazy(self, make):
        stepper, encoder = make("lazy")
        for first in range(1, 5):
            check(stepper, pack(20, 3, first=first))
        seen = stepper.graphs.snapshot()
        assert (seen.missed, seen.captured, seen.replayed, len(encoder.runs)) == (1, 1, 3, 1)

    def test_off_and_above(self, make):
        stepper, encoder = make("off")
        check(stepper, pack(20, 3))
        assert encoder.runs == [23]
        stepper, encoder = make()
        check(stepper, pack(512, 512, 1))
        assert encoder.runs == [1025]

    def test_graphs_of_many_sizes_in_any_order(self, make):
        stepper, _ = make("lazy")
        rng = np.random.default_rng(0)
        for _ in range(300):
            check(stepper, pack(*rng.integers(1, 120, size=rng.integers(1, 9)), first=int(rng.integers(1, 500))))
        assert stepper.graphs.counters.replayed > 200

    def test_every_batch_is_planned_in_the_sizes_that_run(self, make):
        stepper, encoder = make()
        check(stepper, pack(20, 3))
        stepper.capture(own(20, 3))
        check(stepper, pack(7, 3))
        sizes = own(20, 3)
        small = own(7, 3)
        # The second batch is run by the graph of the first, which stands in.
        assert encoder.planned == [(sizes.num_tokens, sizes.num_sequences)] * 3
        stepper.capture(small)
        check(stepper, pack(7, 3))
        assert encoder.planned[3:] == [(small.num_tokens, small.num_sequences)] * 2

    def test_a_failed_step_gives_its_buffer_back(self, make, monkeypatch):
        stepper, encoder = make()

        def fail(inputs):
            raise RuntimeError("out of memory")

        free = len(stepper._input_buffer.staging_pool._free)
        with monkeypatch.context() as patch:
            patch.setattr(encoder, "encode", fail)
            with pytest.raises(RuntimeError, match="out of memory"):
                stepper.step(pack(3))
        assert len(stepper._input_buffer.staging_pool._free) == free
        assert stepper._stream.waited == 1
        check(stepper, pack(3))


class TestOtherPrograms:
    def test_what_is_computed_of_the_inputs_of_a_batch(self, make):
        stepper, encoder = make()
        batch = pack(20, 3)
        later = []

        def compute(inputs):
            assert inputs.attention.max_seqlen == 20
            return Computed({"twice": 2 * inputs.input_ids}, lambda: later.append(1) or {"one": torch.ones(1)})

        lazy = stepper.run(batch, compute)
        assert not later  # it would wait for the device
        result = lazy.result()
        assert result["twice"].tolist() == (2 * batch.input_ids).tolist()
        assert result["one"].tolist() == [1]
        assert encoder.planned == [(23, 2)]

    def test_the_result_is_not_overwritten_by_the_next_batch(self, make):
        stepper, _ = make()
        lazies = [
            stepper.run(pack(5, first=first), lambda inputs: Computed({"ids": inputs.input_ids})) for first in (1, 9)
        ]
        assert [lazy.result()["ids"][0] for lazy in lazies] == [1, 9]

    @pytest.mark.parametrize("where", ["run", "later"])
    def test_a_failed_one_gives_its_buffer_back(self, make, where):
        stepper, _ = make()

        def fail():
            raise ValueError("no")

        def compute(inputs):
            return Computed({}, fail) if where == "later" else fail()

        free = len(stepper._input_buffer.staging_pool._free)
        with pytest.raises(ValueError, match="no"):
            stepper.run(pack(5), compute).result()
        assert len(stepper._input_buffer.staging_pool._free) == free
        check(stepper, pack(5))


class TestCaptures:
    def test_one_that_fails_once_is_run_eagerly_and_tried_again(self, make, cuda):
        stepper, encoder = make()
        encoder.failures = [RuntimeError("a kernel was not loaded")]
        assert stepper.capture(own(20))
        assert encoder.runs == [own(20).num_tokens]
        check(stepper, pack(20))
        assert (stepper.graphs.counters.replayed, stepper.graphs.counters.failed) == (1, 0)
        assert cuda.pools == 2  # an invalidated capture leaves its pool unusable

    def test_one_that_fails_twice_is_barred(self, make):
        stepper, encoder = make("lazy")
        encoder.failures = [RuntimeError("no"), RuntimeError("no")]
        for first in range(4):
            check(stepper, pack(20, first=first))
        seen = stepper.graphs.snapshot()
        assert (seen.missed, seen.captured, seen.failed, seen.replayed) == (4, 0, 1, 0)

    def test_the_last_graph_of_a_pool_takes_the_pool_with_it(self, make, cuda):
        stepper, _ = make()
        assert stepper.capture(own(500))
        stepper.limit(64)
        assert len(stepper.graphs) == 0
        assert stepper.capture(own(20))
        check(stepper, pack(20))
        assert cuda.pools == 2
        assert stepper._recorder.pool_bytes == 1000

    def test_eviction_and_capture_again(self, make):
        stepper, _ = make("lazy", max_graphs=2)
        for _ in range(3):
            for length in (20, 100, 300):
                for first in range(3):
                    check(stepper, pack(length, first=first))
        seen = stepper.graphs.snapshot()
        assert (seen.graphs, seen.captured, seen.evicted, seen.missed) == (2, 9, 7, 9)

    def test_memory_is_counted(self, make):
        stepper, _ = make()
        stepper.capture(own(20))
        stepper.capture(own(100))
        assert stepper.graphs.snapshot().graph_bytes == 2 * 1000 + 2 * 100

    def test_more_than_fits_runs_eagerly(self, make):
        stepper, _ = make(max_bytes=2000)
        for bucket in TABLE.coarse:
            stepper.run_dummy(bucket)
        assert not stepper.capture(own(300, 300))  # 4 bytes a token were measured
        assert stepper.capture(own(300))
        assert stepper.graphs.counters.failed == 1
        check(stepper, pack(300))
        check(stepper, pack(300, 300))

    @pytest.mark.parametrize("fits", [True, False])
    def test_a_pool_that_grows_does_so_by_whole_segments(self, make, monkeypatch, fits):
        stepper, _ = make(max_bytes=3000)
        stepper.run_dummy(own(300, 300))  # 4 bytes a token
        stepper.capture(own(300))
        stepper._recorder._own_pool_bytes = 1200
        monkeypatch.setattr(recorder, "_SEGMENT_BYTES", 1700 if fits else 1800)
        assert stepper.capture(own(300, 40)) == fits

    def test_a_capture_leaves_what_is_in_flight_alone(self, make):
        stepper, _ = make()
        result = stepper.step(pack(20, first=7))
        stepper.capture(own(20))
        other = stepper.step(pack(20, first=9))
        stepper.capture(own(100))
        np.testing.assert_allclose(result.result(), expected(pack(20, first=7)))
        np.testing.assert_allclose(other.result(), expected(pack(20, first=9)))


class TestGivingWay:
    def test_others_step_while_a_capture_records_and_it_queues_nothing(self, make, cuda, monkeypatch):
        stepper, encoder = make()
        check(stepper, pack(20, 30))  # eager: nothing stands in
        meanwhile = []

        def record(inputs):
            graph, cuda.capturing = cuda.capturing, None  # on another stream nothing is captured
            with stepper._turn:
                meanwhile.append(stepper.step(pack(20, 30, first=5)).result())
            cuda.capturing = graph
            return encode(inputs)

        encode = stepper._recorder._encoder.encode
        monkeypatch.setattr(stepper._recorder, "_encoder", SimpleNamespace(encode=record))
        runs = len(encoder.runs)
        interval = sys.getswitchinterval()
        assert stepper.capture(own(20, 30), give_way=True)
        np.testing.assert_allclose(meanwhile[0], expected(pack(20, 30, first=5)))
        assert len(encoder.runs) == runs + 1
        assert stepper._turn.locked()
        assert sys.getswitchinterval() == interval
        check(stepper, pack(20, 30, first=9))
        assert stepper.graphs.counters.replayed == 1

    def test_a_failure_takes_the_turn_back(self, make):
        stepper, encoder = make()
        encoder.failures = [RuntimeError("first"), RuntimeError("second")]
        assert not stepper.capture(own(20), give_way=True)
        assert stepper._turn.locked()
        check(stepper, pack(20))

    def test_what_is_not_run_is_taken_to_need_as_much_memory_as_others(self, make, cuda):
        stepper, _ = make()
        stepper.capture(own(20))
        graphs = stepper.graphs
        alone = graphs.counters.graph_bytes
        cuda.run_bytes = 10_000_000  # what others take meanwhile is not the graph's
        stepper.capture(own(100), give_way=True)
        assert graphs.counters.graph_bytes - alone == 1000 + 100  # the pool's growth, and what the first one took


def test_a_start_then_traffic_then_another_start(make, tmp_path):
    file = ProfileFile(tmp_path, "model", {})
    batches = [pack(*lengths, first=3) for lengths in ((20,), (150, 3), (200,) * 5, (512, 400), (1,) * 40)]
    for number in range(2):
        stepper, _ = make()
        keeper = GraphKeeper(stepper, file, max_tokens=None, start_s=60.0, busy_share=0.01)
        keeper.start()
        assert stepper.graphs.table.max_tokens == 1024
        stood_in = []
        for batch in batches * 2:
            check(stepper, batch)
            stood_in.append(stepper.graphs.counters.stood_in)
            keeper.use_idle_time(quiet=True)
        keeper.close()
        seen = stepper.graphs.snapshot()
        assert (seen.missed, seen.above, seen.failed) == (0, 0, 0)
        assert stood_in[-1] == stood_in[len(batches) - 1]
        assert (seen.stood_in > 0) is (number == 0)


def test_timing_takes_as_many_buffers_as_it_gives_back(make):
    stepper, encoder = make()
    stepper.capture(own(300))
    pool = stepper._input_buffer.staging_pool
    buffers = len(pool._free) + len(pool._lent)  # the capture has lent one
    assert stepper.time_eager(own(300)) > 0
    assert stepper.time_launch(own(300)) > 0
    assert stepper.time_replay(own(300)) > 0
    assert len(encoder.runs) == 8
    assert len(pool._free) + len(pool._lent) == buffers


@pytest.mark.parametrize("bucket", [Bucket(16, 1, 16), Bucket(4096, 16, 512), Bucket(100, 7, 33)])
def test_a_dummy_batch_fills_the_tokens_within_the_bounds(bucket):
    batch = dummy_batch(bucket)
    assert batch.num_tokens == bucket.num_tokens
    assert batch.num_sequences <= bucket.num_sequences
    assert batch.max_seqlen <= bucket.max_seqlen
    assert not batch.input_ids.any()
