"""How blocks are numbered over sequences, in Triton's interpreter if there is no GPU."""

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from lazuli.triton_kernels.layout import find_block, most_blocks, search_width, used_blocks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of numpy, in the interpreter


@triton.jit
def _list_blocks_kernel(cu_seqlens, num_sequences, output, used, tokens: tl.constexpr, width: tl.constexpr):
    block = tl.program_id(0)
    start, length, number = find_block(cu_seqlens, num_sequences, block, tokens, width)
    tl.store(output + 3 * block, start)
    tl.store(output + 3 * block + 1, length)
    tl.store(output + 3 * block + 2, number)
    if block == 0:
        tl.store(used, used_blocks(cu_seqlens, num_sequences, tokens, width))


@pytest.mark.parametrize("tokens", [16, 64])
@pytest.mark.parametrize(
    "lengths",
    [(1,), (100,), (64, 64), (1, 7, 64, 65, 130, 0, 0), (0, 0, 40), (3,) * 1050, (0,) * 33],
    ids=lambda lengths: f"{len(lengths)}x{lengths[0]}",
)
def test_every_token_is_in_one_of_the_blocks_in_use(lengths, tokens):
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    num_blocks = most_blocks(sum(lengths) + 20, len(lengths), tokens)  # some tokens are padding
    output = torch.full((num_blocks, 3), -1, dtype=torch.int32, device=DEVICE)
    used = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    width = search_width(len(lengths))
    _list_blocks_kernel[(num_blocks,)](cu_seqlens.to(DEVICE), len(lengths), output, used, tokens=tokens, width=width)
    found = output[: int(used)].tolist()
    real = [block for block in found if block[2] * tokens < block[1]]
    expected = [
        [start, length, number]
        for start, length in zip(cu_seqlens.tolist(), lengths, strict=False)
        for number in range(-(-length // tokens))
    ]
    assert real == expected
    # A block too many for some of the sequences, but none for those behind the last token.
    before_the_end = (cu_seqlens[:-1] < cu_seqlens[-1]).sum()
    assert len(found) - len(real) <= before_the_end


@pytest.mark.parametrize(("num_sequences", "width"), [(1, 1), (2, 32), (32, 32), (33, 256), (257, 1024), (5000, 1024)])
def test_how_many_starts_are_compared_at_a_time(num_sequences, width):
    assert search_width(num_sequences) == width
