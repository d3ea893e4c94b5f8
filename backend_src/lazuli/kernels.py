"""Operations that are one kernel on a GPU and several torch calls elsewhere.

Each function takes and returns torch tensors and picks by device. The torch versions are the references of the tests.
"""

import torch
import torch.nn.functional as F  # noqa: N812


def add_rms_norm(branch: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Add a branch to the residual, which is overwritten, and normalise the sum.

    Args:
        branch: [T, D].
        residual: [T, D]; afterwards branch + residual.
        weight: [D].
        eps: Added to the mean square.

    Returns:
        [T, D], each row divided by its root mean square, then scaled; computed in float32.
    """
    if branch.is_cuda:
        from lazuli import triton_kernels

        return triton_kernels.add_rms_norm(branch, residual, weight, eps)
    return F.rms_norm(residual.add_(branch), (residual.shape[-1],), weight, eps)


def silu_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    """[T, 2 I] of gates, then ups, to [T, I]: silu(gate) * up."""
    if gate_up.is_cuda:
        from lazuli import triton_kernels

        return triton_kernels.silu_multiply(gate_up)
    gate, up = gate_up.chunk(2, dim=1)
    return F.silu(gate).mul_(up)


def qk_norm_rotary(
    heads: torch.Tensor,
    weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor,
    eps: float,
) -> None:
    """RMS-normalise each head and rotate it by its position, in place.

    Args:
        heads: [T, H, head_dim]; may be a strided view of rows that are contiguous.
        weight: [H, head_dim], the scale of each head.
        cos: [P, head_dim / 2] float32.
        sin: [P, head_dim / 2] float32.
        position_ids: [T] int32, below P.
        eps: Added to the mean square.
    """
    if heads.is_cuda:
        from lazuli import triton_kernels

        triton_kernels.qk_norm_rotary(heads, weight, cos, sin, position_ids, eps)
        return
    normed = F.rms_norm(heads, (heads.shape[-1],), eps=eps) * weight
    first, second = normed.float().chunk(2, dim=-1)
    cosines, sines = (table[position_ids].unsqueeze(1) for table in (cos, sin))  # [T, 1, head_dim / 2]
    heads.copy_(torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1))
