import itertools
import math

import numpy as np
import pytest
import torch

from lazuli.options import ENCODINGS
from lazuli.outputs.finish import NORMALIZED, Finish, finish
from lazuli.outputs.quantize import Quantizer, encode, make_ranges

VECTORS = torch.tensor([[3.0, 4, 12, 5], [0, 5, 1, 0], [0, 0, 2, -7]])


def run(vectors, *chosen, quantizer=None):
    codes = torch.tensor([one.code for one in chosen] * (len(vectors) // len(chosen)), dtype=torch.int32)
    return finish(vectors, codes, quantizer or Quantizer())


class TestCode:
    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_there_and_back(self, encoding):
        for normalize, dimensions, ranges in itertools.product((False, True), (0, 1, 4096, 2**20 - 1), (0, 1, 127)):
            chosen = Finish(normalize, encoding, dimensions, ranges)
            assert Finish.from_code(chosen.code) == chosen
            assert 0 <= chosen.code < 2**31

    def test_what_most_want_is_zero_or_one(self):
        assert (Finish(False).code, Finish(True).code) == (0, NORMALIZED)

    @pytest.mark.parametrize("bad", [{"dimensions": 2**20}, {"ranges": 128}, {"dimensions": -1}])
    def test_what_does_not_fit_is_our_own_mistake(self, bad):
        with pytest.raises(AssertionError):
            Finish(False, **bad)


class TestFloat32:
    def test_scaled_or_not(self):
        plain, scaled = run(VECTORS, Finish(False)), run(VECTORS, Finish(True))
        assert plain.tolist() == VECTORS.tolist()
        torch.testing.assert_close(scaled, VECTORS / VECTORS.norm(dim=1, keepdim=True))

    def test_cut_then_scaled(self):
        # (0, 0) stays as it is: there is nothing to scale.
        expected = torch.tensor([[0.6, 0.8], [0, 1], [0, 0]])
        torch.testing.assert_close(run(VECTORS, Finish(True, dimensions=2))[:, :2], expected)

    def test_cut_only(self):
        assert run(VECTORS, Finish(False, dimensions=2))[:, :2].tolist() == VECTORS[:, :2].tolist()

    def test_the_vectors_that_came_in_stay(self):
        before = VECTORS.clone()
        run(VECTORS, Finish(True), Finish(True, "int8"), Finish(False, dimensions=3), quantizer=Quantizer(native=True))
        assert torch.equal(VECTORS, before)


def test_rows_of_one_batch_may_want_different_things():
    vectors = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    chosen = [Finish(True), Finish(False, "float16"), Finish(False, "binary", 8), Finish(True, "int8", 8, 1)]
    ranges = torch.stack([make_ranges(-torch.ones(16), torch.ones(16), 16)] * 2)
    ranges[1, 1] *= 2
    quantizer = Quantizer(ranges=ranges)
    rows = run(vectors, *chosen, quantizer=quantizer)
    torch.testing.assert_close(rows[0], vectors[0] / vectors[0].norm())
    assert rows[1].view(torch.float16)[:16].tolist() == vectors[1].half().tolist()
    assert rows[2].view(torch.int8)[:1].tolist() == encode(vectors[2:3, :8], "binary", quantizer)[0].tolist()
    cut = vectors[3:, :8] / vectors[3:, :8].norm()
    assert rows[3].view(torch.int8)[:8].tolist() == encode(cut, "int8", quantizer, 1)[0].tolist()
    for number, one in enumerate(chosen):
        alone = run(vectors[number : number + 1], one, quantizer=quantizer)
        assert alone[0].view(torch.uint8).tolist() == rows[number].view(torch.uint8).tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_is_not_finite_is_told_even_if_it_was_cut(bad, place, normalize, encoding):
    vectors = torch.ones(2, 16)
    vectors[1, place * 4] = bad
    quantizer = Quantizer(native=encoding == "int8", ranges=torch.ones(1, 2, 16))
    rows = run(vectors, Finish(normalize, encoding, 8), quantizer=quantizer)
    assert rows[:, -1].isfinite().tolist() == [True, False]


@pytest.mark.parametrize("dimensions", [0, 8])
def test_a_length_that_overflows_is_told_and_no_zero(dimensions):
    vectors = torch.stack([torch.full((16,), 1e30), torch.ones(16)])
    rows = run(vectors, Finish(True, dimensions=dimensions))
    assert rows[:, -1].isfinite().tolist() == [False, True]


def test_a_row_of_every_encoding_fits():
    for encoding in ENCODINGS:
        row = run(torch.ones(1, 8), Finish(False, encoding), quantizer=Quantizer(ranges=torch.ones(1, 2, 8)))
        assert row.shape == (1, 8)
        assert row.dtype == torch.float32
        assert np.isfinite(row[0, -1].item())
