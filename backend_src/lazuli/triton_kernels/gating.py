"""The GPU version of `lazuli.kernels.gate`: one program multiplies a strip of a row. See `early`."""

import torch
import triton
import triton.language as tl

from lazuli.triton_kernels.early import launch_options, let_next_start, wait_for_previous

_BLOCK = 1024


@triton.jit
def _gate_kernel(halves, output, size, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    wait_for_previous(EARLY)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    x = tl.load(halves + row * 2 * size + columns, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(halves + (row * 2 + 1) * size + columns, mask=inside, other=0.0).to(tl.float32)
    if ACTIVATION == "silu":
        x *= tl.sigmoid(x)
    elif ACTIVATION == "gelu":
        x *= 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        tl.static_assert(ACTIVATION == "gelu_tanh")
        # (1 + tanh y) / 2 is the sigmoid of 2 y.
        x *= tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    let_next_start(EARLY)
    tl.store(output + row * size + columns, (x * factor).to(output.dtype.element_ty), mask=inside)


def gate(halves: torch.Tensor, activation: str) -> torch.Tensor:
    """See `lazuli.kernels.gate`."""
    assert halves.is_contiguous(), "rows are found by their number"
    num_tokens, size = halves.shape[0], halves.shape[1] // 2
    output = torch.empty((num_tokens, size), dtype=halves.dtype, device=halves.device)
    grid = (num_tokens, triton.cdiv(size, _BLOCK))
    options = launch_options(halves.device)
    _gate_kernel[grid](halves, output, size, ACTIVATION=activation, BLOCK=_BLOCK, num_warps=4, **options)
    return output
