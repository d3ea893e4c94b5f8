"""Linear layers for few tokens: the norm before and what comes after are in the same kernel.

With few tokens a forward pass is as long as reading the weights takes, plus a gap for every kernel. So a layer is five
kernels here: each reads a strip of weights [N, K] and all tokens, and

- normalises afterwards: (x / rms) W = (x W) / rms. The moments of each token were left by the kernel that wrote it, as
  sums over its blocks of columns;
- divides K among several programs, since one would wait for memory most of the time. The last to finish adds up what
  the others left, always in the same order;
- starts early, while the kernel before it still runs: asks the L2 cache for its weights, and only then waits for its
  tokens (see `early`).

How a product is summed depends on how K is cut, which is the same for a range of numbers of tokens, never on what the
other tokens are.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from lazuli.triton_kernels.early import let_next_start, wait_for_previous

_NUMBERS_A_LINE = tl.constexpr(64)  # of 2 bytes, in a line of the cache


@dataclass(frozen=True)
class Tiling:
    """How a kernel is cut: tokens, outputs and inputs of a block, programs along K, warps, stages of the pipeline."""

    tokens: int
    outputs: int
    inputs: int
    splits: int = 1
    warps: int = 4
    stages: int = 4

    def shared_memory(self, products: int) -> int:
        """Bytes that a program keeps on its way: tokens, and weights of one or two products, of 2 bytes a number."""
        return (self.tokens + products * self.outputs) * self.inputs * 2 * self.stages

    def options(self) -> dict[str, int]:
        """Arguments of a launch."""
        return {
            "BLOCK_M": self.tokens,
            "BLOCK_N": self.outputs,
            "BLOCK_K": self.inputs,
            "SPLITS": self.splits,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


@triton.jit
def _prefetch(rows, SIZE: tl.constexpr, LINES: tl.constexpr):
    """Ask the L2 cache for `SIZE` numbers from each of the pointers `rows` [R] on."""
    line = tl.minimum(tl.arange(0, LINES), (SIZE - 1) // _NUMBERS_A_LINE)
    places = rows[:, None] + line[None, :] * _NUMBERS_A_LINE
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
        "=r,l",
        [places.to(tl.int64, bitcast=True)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def products(
    tokens,  # [BLOCK_M, 1] pointers to where each token begins
    inside,  # [BLOCK_M, 1] whether there is such a token
    first,  # [BLOCK_N] pointers to where rows of weights begin
    second,  # the same, of a second product if TWO
    partial,  # where programs that share a result leave their parts
    counter,  # how many of them have
    SIZE: tl.constexpr,
    TWO: tl.constexpr,
    LINES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One or two products, and whether this program has all of them: if not, it is done."""
    part: tl.constexpr = SIZE // SPLITS
    begin = tl.program_id(2) * part
    if EARLY:
        _prefetch(first + begin, part, LINES)
        if TWO:
            _prefetch(second + begin, part, LINES)
    wait_for_previous(EARLY)
    let_next_start(EARLY)  # it has weights to ask for
    columns = begin + tl.arange(0, BLOCK_K)
    one = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    two = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, part, BLOCK_K):
        values = tl.load(tokens + (start + columns)[None, :], mask=inside, other=0.0)
        one = tl.dot(values, tl.load(first[None, :] + (start + columns)[:, None]), one)
        if TWO:
            two = tl.dot(values, tl.load(second[None, :] + (start + columns)[:, None]), two)
    complete = True
    if SPLITS > 1:
        block = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
        area: tl.constexpr = BLOCK_M * BLOCK_N
        places = partial + block.to(tl.int64) * SPLITS * area * (2 if TWO else 1)
        places += tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        tl.store(places + tl.program_id(2) * area, one)
        if TWO:
            tl.store(places + (SPLITS + tl.program_id(2)) * area, two)
        tl.debug_barrier()  # all threads have written before one of them says so
        complete = tl.atomic_add(counter + block, 1, sem="acq_rel") == SPLITS - 1
        if complete:
            one = tl.load(places, cache_modifier=".cg")
            for split in tl.static_range(1, SPLITS):
                one += tl.load(places + split * area, cache_modifier=".cg")
            if TWO:
                two = tl.load(places + SPLITS * area, cache_modifier=".cg")
                for split in tl.static_range(1, SPLITS):
                    two += tl.load(places + (SPLITS + split) * area, cache_modifier=".cg")
            tl.store(counter + block, 0)
    return one, two, complete


@triton.jit
def moments(sums, rows, inside, SIZE: tl.constexpr, PARTS: tl.constexpr):
    """Mean and mean square of tokens, out of sums over blocks of their columns, [T, 2, PARTS]."""
    part = tl.arange(0, triton.next_power_of_2(PARTS))[None, :]
    places = sums + rows[:, None] * 2 * PARTS + part
    there = inside[:, None] & (part < PARTS)
    total = tl.sum(tl.load(places, mask=there, other=0.0), axis=1)
    squares = tl.sum(tl.load(places + PARTS, mask=there, other=0.0), axis=1)
    return total / SIZE, squares / SIZE
