"""Matrix products for many tokens that apply an activation before they write.

The library's products are as quick, but a kernel for the activation alone reads and writes everything once more. Blocks
come through the tensor memory accelerator; a program takes one block of the output after the other.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from lazuli.triton_kernels.early import launch_options, wait_for_previous

# The interpreter knows no assembly.
_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
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
def _tanh(x):
    if _INTERPRETED:
        result = 2.0 * tl.sigmoid(tl.minimum(tl.maximum(2.0 * x, -40.0), 40.0)) - 1.0
    else:
        assembly: tl.constexpr = "tanh.approx.f32 $0, $1;"
        result = tl.inline_asm_elementwise(assembly, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    return result


@triton.jit
def _gelu(x):
    """The GELU of the error function, x (1 + erf(x / sqrt 2)) / 2.

    Its tanh is that of x times a polynomial in x^2, fitted by least absolute error: 2.5e-5 off at most, where the usual
    tanh formula is 5e-4 off. The hardware's tanh adds 5e-4 |x| / 2 at most, a quarter of what bfloat16 rounds off. One
    special function and six other operations: the error function itself takes longer than the product.
    """
    square = tl.minimum(x * x, 50.0)  # beyond, the polynomial turns, and tanh is 1 anyway
    slope = 0.79750786 + square * (0.037005666 - 0.00035151979 * square)
    half = 0.5 * x
    return half + half * _tanh(x * slope)


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
    EARLY: tl.constexpr,
):
    num_m, num_n = tl.cdiv(num_tokens, BLOCK_M), tl.cdiv(num_outputs, BLOCK_N)
    wait_for_previous(EARLY)
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
        **launch_options(tokens.device),
    )
    return output
