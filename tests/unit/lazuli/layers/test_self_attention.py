import numpy as np
import pytest
import torch

from lazuli.attention.base import AttentionMetadata
from lazuli.attention.sdpa import SdpaAttention
from lazuli.layers.linear import Linear
from lazuli.layers.rotary import Rotary, RotaryTable
from lazuli.layers.self_attention import RotaryAttention

HEADS, KEY_HEADS, HEAD_DIM, SIZE, LENGTH = 4, 2, 8, 12, 21


class Recorder(SdpaAttention):
    def forward(self, query, key, value, metadata, **options):
        self.heads, self.options = (query, key, value), options
        return super().forward(query, key, value, metadata, **options)


def rotated(heads):
    """Pairs (i, i + head_dim / 2) as complex numbers, turned by position; [T, H, head_dim]."""
    first, second = heads.chunk(2, dim=-1)
    angles = torch.outer(torch.arange(LENGTH), 50.0 ** (-torch.arange(HEAD_DIM // 2) * 2 / HEAD_DIM)).unsqueeze(1)
    turned = torch.complex(first, second) * torch.exp(1j * angles)
    return torch.cat([turned.real, turned.imag], dim=-1)


@pytest.mark.parametrize(("window", "causal"), [(None, False), (5, False), (None, True)])
def test_queries_and_keys_are_rotated_and_values_are_not(window, causal):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((HEADS + 2 * KEY_HEADS) * HEAD_DIM, SIZE, generator=generator)
    tokens = torch.randn(LENGTH, SIZE, generator=generator)
    rotary = Rotary(HEADS + KEY_HEADS, HEAD_DIM, RotaryTable(HEAD_DIM, 50.0, 64, torch.device("cpu")))
    backend = Recorder()
    attend = RotaryAttention(backend, Linear(weight), rotary, (HEADS, KEY_HEADS, KEY_HEADS), window, causal=causal)
    cu_seqlens = np.array([0, LENGTH], dtype=np.int32)
    metadata = AttentionMetadata(torch.from_numpy(cu_seqlens), cu_seqlens, LENGTH)
    output = attend(tokens, torch.arange(LENGTH, dtype=torch.int32), metadata)
    assert output.shape == (LENGTH, HEADS * HEAD_DIM)
    assert backend.options == {"window": window, "causal": causal}
    query, key, value = (tokens @ weight.T).unflatten(1, (-1, HEAD_DIM)).split((HEADS, KEY_HEADS, KEY_HEADS), dim=1)
    for mine, expected in zip(backend.heads, (rotated(query), rotated(key), value), strict=True):
        torch.testing.assert_close(mine, expected)
