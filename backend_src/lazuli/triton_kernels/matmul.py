"""Matrix products for many tokens that apply an activation before they write.

The library's products are as quick, but a kernel for the activation alone reads and writes everything once more. Blocks
come through the tensor memory accelerator; a program takes one block of the output after the other.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

_GROUP = 8  # neighbouring programs share weights: so many blocks of tokens come before the next weights


@dataclass(frozen=True)
class Blocks:
    """How the product is cut: tokens, outputs and inputs of a block, warps, stages, programs on a multiprocessor."""

    tokens: int
    outputs: int
    inputs: int
    warps: int
    stages: int
    programs: int
    specialize: bool = False


@triton.jit
def _gelu(x):
    """The exact GELU, 0.5 x (1 + erf(x / sqrt 2)), to 2e-7: formula 7.1.26 of Abramowitz and Stegun for erf."""
    size = tl.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.3275911 * size)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * tl.exp2(size * size * -1.4426950408889634)  # of the normal distribution, beyond |x|
    return x * tl.where(x < 0, tail, 1.0 - tail)


@triton.jit(do_not_specialize=["num_tokens"])
def _matmul_kernel(
    tokens,  # descriptors of [T, K], [N, K] and [T, N or N / 2]
    weight,
    output,
    bias,
    num_tokens,
    num_outputs,
    SIZE: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    num_m, num_n = tl.cdiv(num_tokens, BLOCK_M), tl.cdiv(num_outputs, BLOCK_N)
    for block in tl.range(
        tl.program_id(0), num_m * num_n, tl.num_programs(0), flatten=not SPECIALIZE, warp_specialize=SPECIALIZE
    ):
        first_m = block // (GROUP * num_n) * GROUP
        group_size = tl.minimum(num_m - first_m, GROUP)
        m = (first_m + block % group_size) * BLOCK_M
        n = block % (GROUP * num_n) // group_size * BLOCK_N
        product = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, SIZE, BLOCK_K):
            product = tl.dot(tokens.load([m, start]), weight.load([n, start]).T, product)
        if ACTIVATION == "silu_multiply":
            gate, up = tl.split(tl.reshape(product, (BLOCK_M, BLOCK_N // 2, 2)))
            output.store([m, n // 2], (gate * tl.sigmoid(gate) * up).to(output.dtype))
        else:
            product += tl.load(bias + n + tl.arange(0, BLOCK_N))[None, :].to(tl.float32)
            output.store([m, n], _gelu(product).to(output.dtype))


def matmul(
    tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str, blocks: Blocks
) -> torch.Tensor:
    """A product and its activation.

    Args:
        tokens: [T, K] bfloat16.
        weight: [N, K] bfloat16; for `silu_multiply` rows of gates and ups take turns.
        bias: [N] bfloat16, for `gelu`.
        activation: `gelu` or `silu_multiply`.
        blocks: How to cut it.

    Returns:
        [T, N], or [T, N / 2] from `silu_multiply`.
    """
    num_tokens, size = tokens.shape
    num_outputs = weight.shape[0]
    halved = 2 if activation == "silu_multiply" else 1
    output = tokens.new_empty((num_tokens, num_outputs // halved))
    descriptors = [
        TensorDescriptor.from_tensor(tokens, [blocks.tokens, blocks.inputs]),
        TensorDescriptor.from_tensor(weight, [blocks.outputs, blocks.inputs]),
        TensorDescriptor.from_tensor(output, [blocks.tokens, blocks.outputs // halved]),
    ]
    num_blocks = triton.cdiv(num_tokens, blocks.tokens) * triton.cdiv(num_outputs, blocks.outputs)
    multiprocessors = torch.cuda.get_device_properties(tokens.device).multi_processor_count
    _matmul_kernel[(min(num_blocks, multiprocessors * blocks.programs),)](
        *descriptors,
        weight if bias is None else bias,  # not followed without one
        num_tokens,
        num_outputs,
        SIZE=size,
        ACTIVATION=activation,
        BLOCK_M=blocks.tokens,
        BLOCK_N=blocks.outputs,
        BLOCK_K=blocks.inputs,
        GROUP=_GROUP,
        SPECIALIZE=blocks.specialize,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )
    return output
