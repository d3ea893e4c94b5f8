import numpy as np
import pytest
import torch
from torch.nn.attention import varlen

from lazuli.attention.base import AttentionMetadata
from lazuli.attention.torch_varlen import TorchVarlenAttention

CUDA = torch.device("cuda")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [8, 32, 64, 256])
def test_where_it_runs(dtype, head_dim):
    assert TorchVarlenAttention.why_not(CUDA, dtype, head_dim) is None


@pytest.mark.parametrize(
    ("device", "dtype", "head_dim", "reason"),
    [
        ("cpu", torch.bfloat16, 64, "needs a GPU"),
        ("cuda", torch.float32, 64, "not in torch.float32"),
        ("cuda", torch.bfloat16, 20, "head_dim must be a multiple of 8 up to 256, not 20"),
        ("cuda", torch.bfloat16, 264, "head_dim must be a multiple of 8 up to 256, not 264"),
    ],
)
def test_why_not(device, dtype, head_dim, reason):
    assert reason in TorchVarlenAttention.why_not(torch.device(device), dtype, head_dim)


def test_a_graph_may_hold_it():
    assert TorchVarlenAttention.capturable


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (-1, -1)),
        ({"causal": True}, (-1, 0)),
        ({"window": 3}, (3, 3)),
        ({"window": 3, "causal": True}, (3, 0)),
        ({"window": 4}, (-1, -1)),  # the longest sequence has 5 tokens
    ],
)
def test_windows(monkeypatch, options, expected):
    seen = []
    monkeypatch.setattr(
        varlen, "varlen_attn", lambda query, *rest, window_size, **more: seen.append(window_size) or query
    )
    cu_seqlens = np.array([0, 3, 8], dtype=np.int32)
    heads = torch.zeros(8, 2, 16)
    TorchVarlenAttention().forward(
        heads, heads, heads, AttentionMetadata(torch.from_numpy(cu_seqlens), cu_seqlens, 5), **options
    )
    assert seen == [expected]
