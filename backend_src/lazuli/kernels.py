"""Operations that are one kernel on a GPU and several torch calls elsewhere.

Each function takes and returns torch tensors and picks by device. The torch versions are the references of the tests.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812

_GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}
_MEASURED_ON = (9, 0)  # Hopper; elsewhere other cuts would be needed, or none fits


def rms_norm(tokens: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Divide each row of [T, D] by its root mean square and scale it by [D], if given; computed in float32."""
    if tokens.is_cuda:
        from lazuli.triton_kernels import rows

        return rows.rms_norm(tokens, weight, eps)
    return F.rms_norm(tokens, (tokens.shape[-1],), weight, eps)


def biased_layer_norm(
    tokens: torch.Tensor, before: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """Layer normalisation of rows to which a vector is added first.

    Args:
        tokens: [T, D].
        before: [D], added to each row.
        weight: [D].
        bias: [D].
        eps: Added to the variance.

    Returns:
        [T, D]; computed in float32.
    """
    if tokens.is_cuda:
        from lazuli.triton_kernels import rows

        return rows.biased_layer_norm(tokens, before, weight, bias, eps)
    return F.layer_norm(tokens + before, weight.shape, weight, bias, eps)


def silu_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    """[T, 2 I] of gates and ups that take turns to [T, I]: silu(gate) * up."""
    if gate_up.is_cuda:
        from lazuli.triton_kernels import rows

        return rows.silu_multiply(gate_up)
    return F.silu(gate_up[:, 0::2]) * gate_up[:, 1::2]


def qk_norm_rotary(
    heads: torch.Tensor,
    weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor,
    eps: float,
) -> None:
    """RMS-normalise each head and rotate its pairs (i, i + head_dim / 2) by its position, in place.

    Args:
        heads: [T, H, head_dim]; may be a strided view of rows that are contiguous.
        weight: [H, head_dim], the scale of each head.
        cos: [P, head_dim / 2] float32.
        sin: [P, head_dim / 2] float32.
        position_ids: [T] int32, below P.
        eps: Added to the mean square.
    """
    if heads.is_cuda:
        from lazuli.triton_kernels import rows

        rows.qk_norm_rotary(heads, weight, cos, sin, position_ids, eps)
        return
    normed = (F.rms_norm(heads, (heads.shape[-1],), eps=eps) * weight).float()
    heads.copy_(_rotated(normed, cos, sin, position_ids))


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position_ids: torch.Tensor) -> None:
    """Rotate each head's pairs (i, i + head_dim / 2) by its position, in place; arguments as in `qk_norm_rotary`."""
    if heads.is_cuda:
        from lazuli.triton_kernels import rotation

        rotation.rotate(heads, cos, sin, position_ids)
    else:
        heads.copy_(_rotated(heads.float(), cos, sin, position_ids))


def _rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    first, second = heads.chunk(2, dim=-1)
    cosines, sines = (table[position_ids].unsqueeze(1) for table in (cos, sin))  # [T, 1, head_dim / 2]
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


def gate(halves: torch.Tensor, activation: str) -> torch.Tensor:
    """[T, 2 I], all gates before all ups, to [T, I]: the activated gates times the ups.

    Args:
        halves: The product.
        activation: `silu`, `gelu`, or `gelu_tanh`, its approximation.
    """
    if halves.is_cuda:
        from lazuli.triton_kernels import gating

        return gating.gate(halves, activation)
    gates, ups = halves.chunk(2, dim=1)
    return _GATES[activation](gates).mul_(ups)


def activated_product(
    activation: str, tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor | None:
    """A product with its activation in one kernel of a GPU, where that was measured to be the quickest way.

    Args:
        activation: `gelu` or `silu_multiply`.
        tokens: [T, K] on a GPU.
        weight: [N, K].
        bias: [N], for `gelu`.

    Returns:
        [T, N], or [T, N / 2] from `silu_multiply`; None where product and activation apart are quicker.
    """
    from lazuli.linear_tiling import choose_blocks
    from lazuli.triton_kernels.matmul import matmul

    if tokens.dtype != torch.bfloat16 or torch.cuda.get_device_capability(tokens.device) != _MEASURED_ON:
        return None
    num_outputs, size = weight.shape
    blocks = choose_blocks(activation, num_outputs, size, len(tokens))
    return None if blocks is None else matmul(tokens, weight, bias, activation, blocks)
