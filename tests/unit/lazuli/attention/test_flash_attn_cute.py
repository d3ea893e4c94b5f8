import numpy as np
import pytest
import torch

from lazuli.attention import flash_attn_cute
from lazuli.attention.base import AttentionMetadata, AttentionShape
from lazuli.attention.flash_attn_cute import FlashAttnCuteAttention

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SHAPE = AttentionShape(4, 2, 32, causal=True, num_layers=1)


class Function:
    def __init__(self):
        self.calls = []

    def __call__(self, query, key, value, **options):
        self.calls.append((query, key, value, options))
        options["out"].fill_(2)


def test_a_call():
    function = Function()
    attention = FlashAttnCuteAttention(SHAPE, function, CPU, torch.bfloat16)
    cu_seqlens = np.array([0, 3, 8, 8], dtype=np.int32)
    batch = AttentionMetadata(torch.from_numpy(cu_seqlens), cu_seqlens, 5, num_tokens=16)
    heads = torch.zeros(16, 8, 32).bfloat16().split((4, 2, 2), dim=1)
    attention.plan(batch)
    output = attention.forward(*heads, batch, causal=True)
    assert output.shape == (16, 4, 32)
    assert (output == 2).all()
    query, key, value, options = function.calls[0]
    assert (query is heads[0], key is heads[1], value is heads[2]) == (True, True, True)
    assert options["cu_seqlens_q"] is options["cu_seqlens_k"] is batch.cu_seqlens
    assert options["causal"] is True
    assert "max_seqlen_q" not in options
    assert "window_size_left" not in options


@pytest.mark.parametrize(
    ("window", "causal", "sides"),
    [(3, False, (3, 3, False)), (3, True, (3, 0, False)), (4, True, (None, None, True)), (0, False, (0, 0, False))],
)
def test_a_window(window, causal, sides):
    function = Function()
    attention = FlashAttnCuteAttention(SHAPE, function, CPU, torch.bfloat16)
    cu_seqlens = np.array([0, 3, 8], dtype=np.int32)
    batch = AttentionMetadata(torch.from_numpy(cu_seqlens), cu_seqlens, 5)
    attention.plan(batch)
    attention.forward(*torch.zeros(8, 8, 32).bfloat16().split((4, 2, 2), dim=1), batch, causal=causal, window=window)
    options = function.calls[0][3]
    assert (options.get("window_size_left"), options.get("window_size_right"), options["causal"]) == sides


def test_each_kernel_runs_once_before_the_first_batch():
    function = Function()
    attention = FlashAttnCuteAttention(SHAPE, function, CPU, torch.bfloat16)
    for num_sequences in (1, 257):
        attention._run_once(num_sequences)
    shapes = [(query.shape, key.shape, len(options["cu_seqlens_q"])) for query, key, _, options in function.calls]
    assert shapes == [((1, 4, 32), (1, 2, 32), 2), ((257, 4, 32), (257, 2, 32), 258)]


def test_the_kernels_with_a_window_run_once_too():
    function = Function()
    attention = FlashAttnCuteAttention(SHAPE, function, CPU, torch.bfloat16)
    attention._run_once(1, 64)
    assert function.calls[0][3]["window_size_left"] == 64


class TestWhyNot:
    @pytest.fixture(autouse=True)
    def hopper(self, monkeypatch):
        monkeypatch.setattr(flash_attn_cute, "version", lambda package: "4")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    @pytest.mark.parametrize("head_dim", [32, 64, 128, 256])
    def test_where_it_runs(self, head_dim):
        assert FlashAttnCuteAttention.why_not(CUDA, torch.bfloat16, head_dim) is None

    @pytest.mark.parametrize(
        ("device", "dtype", "head_dim", "reason"),
        [
            (CPU, torch.bfloat16, 64, "needs a GPU"),
            (CUDA, torch.float32, 64, "not in torch.float32"),
            (CUDA, torch.bfloat16, 20, "head_dim must be a multiple of 8 up to 256, not 20"),
        ],
    )
    def test_what_it_cannot_compute(self, device, dtype, head_dim, reason):
        assert reason in FlashAttnCuteAttention.why_not(device, dtype, head_dim)

    def test_an_old_gpu(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
        assert "9.0 or later, not 8.6" in FlashAttnCuteAttention.why_not(CUDA, torch.bfloat16, 64)

    @pytest.mark.parametrize("missing", ["flash-attn-4", "nvidia-cutlass-dsl"])
    def test_what_is_not_installed_is_named(self, monkeypatch, missing):
        def find(package):
            if package == missing:
                raise flash_attn_cute.PackageNotFoundError
            return "4"

        monkeypatch.setattr(flash_attn_cute, "version", find)
        reason = FlashAttnCuteAttention.why_not(CUDA, torch.bfloat16, 64)
        assert reason == f"the package {missing} is not installed"
