"""Matrix products for many tokens that apply an activation, or a rotation, before they write.

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


@triton.jit
def _norm_rotate(
    heads,
    head_weight,
    cos,
    sin,
    positions,
    inside,
    eps,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Norm and rotation of whole heads, [BLOCK_M, BLOCK_N], whose rotating pairs are neighbours."""
    half: tl.constexpr = HEAD_DIM // 2
    count: tl.constexpr = BLOCK_N // HEAD_DIM
    pairs = tl.reshape(heads, (BLOCK_M, count, half, 2))
    first, second = tl.split(pairs)  # [BLOCK_M, count, half] each
    mean_square = tl.sum(first * first + second * second, axis=2) / HEAD_DIM
    scale = tl.rsqrt(mean_square + eps)[:, :, None]
    place = tl.arange(0, count)[:, None] * HEAD_DIM + 2 * tl.arange(0, half)[None, :]
    first *= scale * tl.load(head_weight + place)[None, :, :].to(tl.float32)
    second *= scale * tl.load(head_weight + place + 1)[None, :, :].to(tl.float32)
    angle = positions[:, None, None] * half + tl.arange(0, half)[None, None, :]
    cosine = tl.load(cos + angle, mask=inside[:, None, None], other=0.0)
    sine = tl.load(sin + angle, mask=inside[:, None, None], other=0.0)
    turned = tl.join(first * cosine - second * sine, second * cosine + first * sine)
    return tl.reshape(turned, (BLOCK_M, BLOCK_N))


@triton.jit(do_not_specialize=["num_tokens"])
def _matmul_kernel(
    tokens,  # descriptors of [T, K], [N, K] and [T, N or N / 2]
    weight,
    output,
    vector,  # bias, or the scales of rotated heads
    cos,
    sin,
    position_ids,
    num_tokens,
    num_outputs,
    num_rotated,  # outputs that belong to rotated heads
    eps,
    SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    EPILOGUE: tl.constexpr,
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
        if EPILOGUE == "silu_multiply":
            gate, up = tl.split(tl.reshape(product, (BLOCK_M, BLOCK_N // 2, 2)))
            output.store([m, n // 2], (gate * tl.sigmoid(gate) * up).to(output.dtype))
        elif EPILOGUE == "gelu":
            product += tl.load(vector + n + tl.arange(0, BLOCK_N))[None, :].to(tl.float32)
            output.store([m, n], _gelu(product).to(output.dtype))
        else:
            if n < num_rotated:
                rows = m + tl.arange(0, BLOCK_M)
                inside = rows < num_tokens
                positions = tl.load(position_ids + rows, mask=inside, other=0)
                product = _norm_rotate(
                    product, vector + n, cos, sin, positions, inside, eps, HEAD_DIM, BLOCK_M, BLOCK_N
                )
            output.store([m, n], product.to(output.dtype))


@dataclass(frozen=True)
class Epilogue:
    """What becomes of a product before it is written.

    Attributes:
        kind: `gelu` (after adding a bias), `silu_multiply` (of gates and ups that take turns), or `norm_rotate`.
        vector: The bias [N], or the scales of the rotated heads [R, head_dim]; not for `silu_multiply`.
        rotation: For `norm_rotate`: cosines and sines [P, head_dim / 2] float32, position_ids [T] int32, and eps.
    """

    kind: str
    vector: torch.Tensor | None = None
    rotation: tuple[torch.Tensor, torch.Tensor, torch.Tensor, float] | None = None


def matmul(tokens: torch.Tensor, weight: torch.Tensor, epilogue: Epilogue, blocks: Blocks) -> torch.Tensor:
    """A product and its epilogue.

    Args:
        tokens: [T, K] bfloat16.
        weight: [N, K] bfloat16.
        epilogue: What to apply.
        blocks: How to cut it.

    Returns:
        [T, N], or [T, N / 2] from `silu_multiply`.
    """
    num_tokens, size = tokens.shape
    num_outputs = weight.shape[0]
    halved = 2 if epilogue.kind == "silu_multiply" else 1
    output = tokens.new_empty((num_tokens, num_outputs // halved))
    descriptors = [
        TensorDescriptor.from_tensor(tokens, [blocks.tokens, blocks.inputs]),
        TensorDescriptor.from_tensor(weight, [blocks.outputs, blocks.inputs]),
        TensorDescriptor.from_tensor(output, [blocks.tokens, blocks.outputs // halved]),
    ]
    nothing = weight  # for pointers that the kernel does not follow
    cos, sin, position_ids, eps = epilogue.rotation or (nothing, nothing, nothing, 0.0)
    vector, num_rotated, head_dim = epilogue.vector, 0, 0
    if epilogue.kind == "norm_rotate":
        assert vector is not None, "heads have scales"
        num_rotated, head_dim = vector.numel(), vector.shape[1]
        assert num_rotated % blocks.outputs == 0, "a block must be rotated as a whole or not at all"
    num_blocks = triton.cdiv(num_tokens, blocks.tokens) * triton.cdiv(num_outputs, blocks.outputs)
    multiprocessors = torch.cuda.get_device_properties(tokens.device).multi_processor_count
    _matmul_kernel[(min(num_blocks, multiprocessors * blocks.programs),)](
        *descriptors,
        nothing if vector is None else vector,
        cos,
        sin,
        position_ids,
        num_tokens,
        num_outputs,
        num_rotated,
        eps,
        SIZE=size,
        HEAD_DIM=head_dim,
        EPILOGUE=epilogue.kind,
        BLOCK_M=blocks.tokens,
        BLOCK_N=blocks.outputs,
        BLOCK_K=blocks.inputs,
        GROUP=_GROUP,
        SPECIALIZE=blocks.specialize,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )
    return output
