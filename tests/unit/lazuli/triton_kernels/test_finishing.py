"""What becomes of vectors on the GPU, against the torch version; without a GPU in Triton's interpreter."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from lazuli.options import ENCODINGS
from lazuli.outputs.finish import Finish, finish
from lazuli.outputs.quantize import Quantizer, make_ranges
from lazuli.triton_kernels import pooling

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::RuntimeWarning"
)  # of numpy, in the interpreter

SIZE = 48


def random(*shape, seed=0, scale=1.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def quantizers():
    ranges = [
        make_ranges(-random(size, seed=2).abs() - 0.1, random(size, seed=3).abs() + 0.1, SIZE) for size in (48, 16)
    ]
    return {"none": Quantizer(), "native": Quantizer(native=True), "ranges": Quantizer(ranges=torch.stack(ranges))}


def cases(name):
    """Everything that a model with such a quantiser offers."""
    encodings = [encoding for encoding in ENCODINGS if "int8" not in encoding or name == "ranges"]
    encodings += ["int8"] * (name == "native")
    kept = [(0, 0), (16, 1)]
    return [Finish(flag, encoding, *sizes) for flag in (False, True) for encoding in encodings for sizes in kept]


def columns_of(chosen, native):
    """Bytes of a row that hold the encoded vector, and those that hold whether it is finite."""
    values = chosen.dimensions or SIZE
    packed = chosen.encoding == "ubinary" or (chosen.encoding == "binary" and not native)
    count = values // 8 if packed else values * {"float32": 4, "float16": 2}.get(chosen.encoding, 1)
    return [*range(count), *range(4 * SIZE - 4, 4 * SIZE)]


def run(vectors, codes, quantizer):
    ranges = Quantizer(quantizer.native, quantizer.ranges.to(DEVICE))
    return pooling.finish(vectors.to(DEVICE), codes.to(DEVICE), ranges).cpu().view(torch.uint8)


@pytest.mark.parametrize("name", ["none", "native", "ranges"])
def test_each_row_as_its_code_says(name):
    quantizer, chosen = quantizers()[name], cases(name)
    codes = torch.tensor([one.code for one in chosen], dtype=torch.int32)
    vectors = random(len(chosen), SIZE, seed=1)
    vectors[:, 5] = 0
    rows, expected = run(vectors, codes, quantizer), finish(vectors, codes, quantizer).view(torch.uint8)
    for number, one in enumerate(chosen):
        columns = columns_of(one, quantizer.native)
        if one.encoding == "float32":
            torch.testing.assert_close(
                rows[number, columns].view(torch.float32), expected[number, columns].view(torch.float32)
            )
        elif one.encoding == "float16":
            torch.testing.assert_close(
                rows[number, columns].view(torch.float16), expected[number, columns].view(torch.float16)
            )
        else:
            assert rows[number, columns].tolist() == expected[number, columns].tolist(), one


@pytest.mark.parametrize("name", ["none", "native", "ranges"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 40])
def test_what_is_not_finite_is_told_even_if_it_was_cut(name, bad, place):
    quantizer, chosen = quantizers()[name], cases(name)
    codes = torch.tensor([one.code for one in chosen], dtype=torch.int32)
    vectors = random(len(chosen), SIZE, seed=1)
    vectors[:, place] = bad
    for rows in (run(vectors, codes, quantizer), finish(vectors, codes, quantizer)):
        values = rows.contiguous().view(torch.float32)
        for number, one in enumerate(chosen):
            whole = one.encoding == "float32" and not one.dimensions
            told = values[number] if whole else values[number, -1:]
            assert not told.isfinite().all(), one


def test_a_length_that_overflows_is_told():
    vectors = torch.full((4, SIZE), 1e30)
    chosen = [Finish(True), Finish(True, "int8"), Finish(True, "float32", 16), Finish(False, "float32", 16)]
    codes = torch.tensor([one.code for one in chosen], dtype=torch.int32)
    quantizer = Quantizer(native=True)
    for rows in (run(vectors, codes, quantizer).view(torch.float32), finish(vectors, codes, quantizer)):
        assert rows[:, -1].isfinite().tolist() == [False, False, False, True]


def test_integers_are_rounded_as_the_reference_does():
    """All at a quarter of a step: what float32 cannot tell from a half may go either way."""
    vectors = (
        torch.atanh(torch.arange(-126.75, 127, 0.5).clamp(-126.9, 126.9) / 127)[: SIZE * 10].view(10, SIZE).clone()
    )
    codes = torch.full((10,), Finish(False, "int8").code, dtype=torch.int32)
    rows = run(vectors, codes, Quantizer(native=True))[:, :SIZE].view(torch.int8)
    expected = np.round(np.tanh(vectors.double().numpy()) * 127)
    assert np.array_equal(rows.numpy(), expected)


@pytest.mark.parametrize("size", [384, 1000, 20])
def test_other_sizes(size):
    vectors = random(3, size, seed=4)
    codes = torch.tensor([Finish(flag, "float16").code for flag in (True, False, True)], dtype=torch.int32)
    rows = pooling.finish(vectors.to(DEVICE), codes.to(DEVICE), Quantizer()).cpu()
    expected = finish(vectors, codes, Quantizer())
    torch.testing.assert_close(rows.view(torch.float16)[:, :size], expected.view(torch.float16)[:, :size])
    assert rows[:, -1].tolist() == [0, 0, 0]
