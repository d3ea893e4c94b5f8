from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lazuli.attention import flashinfer_ragged
from lazuli.attention.base import AttentionMetadata, AttentionShape
from lazuli.attention.flashinfer_ragged import FlashInferFa2Attention, FlashInferFa3Attention
from lazuli.lazy_tensor import PinnedPool

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SHAPE = AttentionShape(4, 2, 64, causal=True, num_layers=1)
BOTH = pytest.mark.parametrize("backend", [FlashInferFa2Attention, FlashInferFa3Attention])
WORKSPACE_BYTES = 4 << 20


class Event:
    """Of a copy that is never over, unless a test says so."""

    recorded = 0
    done = False

    def record(self):
        self.recorded += 1

    def query(self):
        return self.done


@pytest.fixture(autouse=True)
def event(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)


class Module:
    """Stands for the compiled functions; keeps what they are called with."""

    def __init__(self):
        self.plans, self.runs = [], []

    def plan(self, *arguments):
        self.plans.append(arguments)
        arguments[2].fill_(255)  # the schedule
        return f"schedule {len(self.plans)}"

    def ragged_run(self, *arguments):
        self.runs.append(arguments)


def make_backend(backend):
    module, pool = Module(), PinnedPool((WORKSPACE_BYTES,), torch.uint8, pin_memory=False)
    return backend(SHAPE, module, pool, CPU, torch.bfloat16), module, pool


def padded_batch():
    cu_seqlens = np.array([0, 3, 8, 8, 8], dtype=np.int32)
    return AttentionMetadata(torch.from_numpy(cu_seqlens.copy()), cu_seqlens, 5, num_tokens=16)


def heads():
    packed = torch.randn(16, 8, 64).bfloat16()
    return packed.split((4, 2, 2), dim=1)


@BOTH
class TestCalls:
    def test_the_plan_gets_the_padded_layout_and_the_sizes_of_the_bucket(self, backend):
        attention, module, _ = make_backend(backend)
        attention.plan(padded_batch())
        ((_, workspace, staging, queries, keys, lengths, *sizes),) = module.plans
        assert workspace.numel() == staging.numel() == WORKSPACE_BYTES
        assert queries.tolist() == keys.tolist() == [0, 3, 8, 8, 8]
        assert lengths.tolist() == [3, 5, 0, 0]
        assert sizes[:10] == [16, 4, 4, 2, 1, True, 64, 64, True, -1]
        assert sizes[10:] == ([-1, True, 0] if backend is FlashInferFa2Attention else [])

    def test_the_run_gets_the_plan_of_its_batch_and_the_layout_on_the_device(self, backend):
        attention, module, _ = make_backend(backend)
        batch = padded_batch()
        attention.plan(batch)
        output = attention.forward(*heads(), batch, causal=True)
        ((_, _, schedule, *_, queries, keys, written, log_sums, causal, layout, window, overlap), options) = (
            module.runs[0][:14],
            module.runs[0][14:],
        )
        assert schedule == "schedule 1"
        assert queries is keys is batch.cu_seqlens
        assert written.data_ptr() == output.data_ptr()
        assert (output.shape, log_sums) == ((16, 4, 64), None)
        assert (causal, layout, window, overlap) == (1, 0, -1, False)
        assert options.count(1 / 8) == 1  # the scale
        assert len(options) == (13 if backend is FlashInferFa2Attention else 8)

    def test_no_pinned_buffer_is_filled_while_it_is_copied(self, backend):
        attention, module, pool = make_backend(backend)
        for _ in range(3):
            attention.plan(padded_batch())
        assert len({plan[2].data_ptr() for plan in module.plans}) == len(pool._lent) == 3
        assert [event.recorded for event, _ in pool._lent] == [1, 1, 1]

    def test_forward_without_the_plan_of_its_batch_is_refused(self, backend):
        attention, _, _ = make_backend(backend)
        with pytest.raises(AssertionError, match="was not called for this batch"):
            attention.forward(*heads(), padded_batch())
        attention.plan(padded_batch())
        with pytest.raises(AssertionError, match="was not called for this batch"):
            attention.forward(*heads(), padded_batch())

    def test_each_thread_has_a_plan_of_its_own(self, backend):
        """One captures a graph while another runs batches."""
        attention, _, _ = make_backend(backend)
        captured = padded_batch()
        attention.plan(captured)

        def run():
            batch = padded_batch()
            attention.plan(batch)
            attention.forward(*heads(), batch)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(run).result()
        attention.forward(*heads(), captured)

    def test_the_layout_must_be_padded_on_the_host(self, backend):
        attention, _, _ = make_backend(backend)
        batch = padded_batch()
        with pytest.raises(AssertionError, match="padded on the host"):
            attention.plan(AttentionMetadata(batch.cu_seqlens, batch.cu_seqlens_cpu[:3], 5, num_tokens=16))

    def test_padding_rows_of_the_output_are_finite(self, backend):
        attention, _, _ = make_backend(backend)
        batch = padded_batch()
        attention.plan(batch)
        attention.forward(*heads(), batch).fill_(float("nan"))
        attention.plan(batch)
        assert not attention.forward(*heads(), batch)[8:].any()


def test_fa2_clears_what_an_earlier_plan_left_where_tiles_are_listed(monkeypatch):
    monkeypatch.setattr(Event, "done", True)
    attention, module, pool = make_backend(FlashInferFa2Attention)
    seen = []
    fill = module.plan
    module.plan = lambda *arguments: (seen.append(arguments[2].clone()), fill(*arguments))[1]
    for _ in range(2):
        attention.plan(padded_batch())
    assert len(pool._lent) == 1
    assert not pool._free
    tiles = 16 * 2 // 16 + 4
    assert not seen[1][: 3 * 4 * tiles].any()
    assert seen[1][-1] == 255


@BOTH
class TestWhyNot:
    @pytest.fixture(autouse=True)
    def hopper(self, monkeypatch):
        monkeypatch.setattr(flashinfer_ragged, "version", lambda package: "0.6.11.post2")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    @pytest.mark.parametrize("head_dim", [64, 128, 256])
    def test_where_it_runs(self, backend, head_dim):
        assert backend.why_not(CUDA, torch.bfloat16, head_dim) is None

    @pytest.mark.parametrize(
        ("device", "dtype", "head_dim", "reason"),
        [
            (CPU, torch.bfloat16, 64, "needs a GPU"),
            (CUDA, torch.float32, 64, "not in torch.float32"),
            (CUDA, torch.bfloat16, 32, "head_dim must be 64, 128 or 256, not 32"),
        ],
    )
    def test_what_it_cannot_compute(self, backend, device, dtype, head_dim, reason):
        assert reason in backend.why_not(device, dtype, head_dim)

    def test_another_version(self, backend, monkeypatch):
        monkeypatch.setattr(flashinfer_ragged, "version", lambda package: "0.7.4")
        assert "must be 0.6.11, not 0.7.4" in backend.why_not(CUDA, torch.bfloat16, 64)

    def test_an_old_gpu(self, backend, monkeypatch):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        assert "not 7.5" in backend.why_not(CUDA, torch.bfloat16, 64)

    def test_no_package(self, backend, monkeypatch):
        def missing(package):
            raise flashinfer_ragged.PackageNotFoundError

        monkeypatch.setattr(flashinfer_ragged, "version", missing)
        assert backend.why_not(CUDA, torch.bfloat16, 64) == "the package flashinfer-python is not installed"


def test_fa3_is_for_hopper_alone(monkeypatch):
    monkeypatch.setattr(flashinfer_ragged, "version", lambda package: "0.6.11")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (10, 0))
    assert FlashInferFa3Attention.why_not(CUDA, torch.bfloat16, 64) == "it needs compute capability 9.0, not 10.0"
    assert FlashInferFa2Attention.why_not(CUDA, torch.bfloat16, 64) is None


@BOTH
@pytest.mark.parametrize("is_compiled", [True, False])
def test_it_is_not_compiled_unless_asked_for(backend, is_compiled, monkeypatch):
    specification = type("Specification", (), {"is_compiled": is_compiled})
    monkeypatch.setattr(flashinfer_ragged, "_specification", lambda kernel, dtype, head_dim: specification)
    reason = backend.why_slow_to_make(SHAPE, torch.bfloat16)
    assert (reason is None) == is_compiled
    assert is_compiled or "flashinfer_ragged 64" in reason
