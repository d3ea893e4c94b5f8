"""kernels: the torch versions against plain formulas. tests/gpu holds the GPU versions against these."""

import pytest
import torch

from lazuli.kernels import add_rms_norm, qk_norm_rotary, silu_multiply


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("num_tokens", "size"), [(1, 8), (7, 33), (65, 128)])
def test_add_rms_norm(num_tokens, size):
    branch, residual, weight = random(num_tokens, size), random(num_tokens, size, seed=1), random(size, seed=2)
    total = branch + residual
    expected = total / (total.pow(2).mean(dim=1, keepdim=True) + 1e-6).sqrt() * weight
    torch.testing.assert_close(add_rms_norm(branch, residual, weight, 1e-6), expected)
    torch.testing.assert_close(residual, total)


def test_silu_multiply():
    gate_up = random(5, 14)
    gate, up = gate_up[:, :7], gate_up[:, 7:]
    torch.testing.assert_close(silu_multiply(gate_up), gate / (1 + (-gate).exp()) * up)


def test_qk_norm_rotary_turns_pairs_by_position_and_keeps_their_length():
    num_tokens, num_heads, head_dim = 5, 3, 8
    everything = random(num_tokens, num_heads + 2, head_dim)
    heads = everything[:, :num_heads]  # a view, as the query is of the packed projection
    before, rest = heads.clone(), everything[:, num_heads:].clone()
    weight, angles = random(num_heads, head_dim, seed=1), random(10, head_dim // 2, seed=2)
    position_ids = torch.tensor([0, 3, 3, 9, 1], dtype=torch.int32)
    qk_norm_rotary(heads, weight, angles.cos(), angles.sin(), position_ids, 1e-6)

    normed = before / (before.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt() * weight
    pairs = torch.complex(normed[..., :4], normed[..., 4:])
    turned = pairs * torch.polar(torch.ones(5, 4), angles[position_ids]).unsqueeze(1)
    torch.testing.assert_close(heads, torch.cat([turned.real, turned.imag], dim=-1))
    assert torch.equal(everything[:, num_heads:], rest)
