"""kernels: the torch versions against plain formulas. tests/gpu holds the GPU versions against these."""

import pytest
import torch

from lazuli.kernels import biased_layer_norm, qk_norm_rotary, rms_norm, silu_multiply


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


SIZES = pytest.mark.parametrize(("num_tokens", "size"), [(1, 8), (7, 33), (65, 128)])


@SIZES
def test_rms_norm(num_tokens, size):
    tokens, weight = random(num_tokens, size), random(size, seed=1)
    expected = tokens / (tokens.pow(2).mean(dim=1, keepdim=True) + 1e-6).sqrt() * weight
    torch.testing.assert_close(rms_norm(tokens, weight, 1e-6), expected)


@SIZES
def test_biased_layer_norm(num_tokens, size):
    tokens, before, weight, bias = random(num_tokens, size), *(random(size, seed=seed) for seed in (1, 2, 3))
    total = tokens + before
    deviation = (total.var(dim=1, correction=0, keepdim=True) + 1e-5).sqrt()
    expected = (total - total.mean(dim=1, keepdim=True)) / deviation * weight + bias
    torch.testing.assert_close(biased_layer_norm(tokens, before, weight, bias, 1e-5), expected)


def test_silu_multiply_of_neighbours():
    gate, up = random(5, 7), random(5, 7, seed=1)
    gate_up = torch.stack([gate, up], dim=2).flatten(1)
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
