import numpy as np
import pytest
import torch
from sentence_transformers.util.quantization import quantize_embeddings

from lazuli.outputs.quantize import Quantizer, encode, make_ranges

NATIVE = Quantizer(native=True)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def calibrated(vectors):
    ranges = make_ranges(vectors.min(dim=0).values, vectors.max(dim=0).values, vectors.shape[1])
    return Quantizer(ranges=ranges[None])


class TestNative:
    def test_int8_rounds_and_does_not_cut(self):
        vectors = random(20, 64) * 2
        expected = np.clip(np.round(np.tanh(vectors.double().numpy()) * 127), -128, 127)
        encoded = encode(vectors, "int8", NATIVE)
        assert encoded.dtype == torch.int8
        assert np.array_equal(encoded.numpy(), expected)

    @pytest.mark.parametrize(("value", "integer", "sign"), [(-0.001, 0, -1), (0.0, 0, 1), (-0.0, 0, 1), (9.0, 127, 1)])
    def test_binary_is_the_sign_of_what_was_not_rounded(self, value, integer, sign):
        vectors = torch.full((1, 8), value)
        assert encode(vectors, "int8", NATIVE).tolist() == [[integer] * 8]
        assert encode(vectors, "binary", NATIVE).tolist() == [[sign] * 8]
        assert encode(vectors, "ubinary", NATIVE).tolist() == [[255 if sign > 0 else 0]]

    def test_ubinary_has_the_first_dimension_in_the_highest_bit(self):
        vectors = random(5, 32)
        expected = np.packbits(vectors.numpy() >= 0, axis=1)
        assert encode(vectors, "ubinary", NATIVE).tolist() == expected.tolist()


class TestCalibrated:
    @pytest.mark.parametrize("encoding", ["int8", "uint8"])
    def test_as_sentence_transformers_within_the_ranges(self, encoding):
        vectors = random(200, 32)
        expected = quantize_embeddings(vectors.numpy(), encoding, calibration_embeddings=vectors.numpy())
        encoded = encode(vectors, encoding, calibrated(vectors)).numpy()
        assert encoded.dtype == expected.dtype
        assert np.array_equal(encoded, expected)

    @pytest.mark.parametrize(("encoding", "least", "most"), [("int8", -128, 127), ("uint8", 0, 255)])
    def test_what_lies_outside_becomes_the_outermost_value(self, encoding, least, most):
        quantizer = calibrated(random(100, 4))
        far = torch.tensor([[-50.0, 50.0, -1e30, 1e30]])
        assert encode(far, encoding, quantizer).tolist() == [[least, most, least, most]]

    def test_a_dimension_that_never_changes(self):
        vectors = torch.full((3, 8), 0.25)
        quantizer = calibrated(vectors)
        assert encode(vectors, "uint8", quantizer).unique().tolist() == [0]
        assert encode(vectors, "int8", quantizer).unique().tolist() == [-128]

    def test_ranges_of_fewer_dimensions(self):
        vectors = random(50, 16)
        ranges = make_ranges(vectors.min(dim=0).values, vectors.max(dim=0).values, 64)
        both = Quantizer(ranges=torch.stack([torch.ones(2, 64), ranges]))
        assert torch.equal(encode(vectors, "int8", both, 1), encode(vectors, "int8", calibrated(vectors)))


@pytest.mark.parametrize("encoding", ["binary", "ubinary"])
def test_bits_as_sentence_transformers(encoding):
    vectors = random(20, 64)
    vectors[0, :8] = 0
    expected = quantize_embeddings(vectors.numpy(), encoding)
    encoded = encode(vectors, encoding, Quantizer()).numpy()
    assert encoded.dtype == expected.dtype
    assert np.array_equal(encoded, expected)


def test_float16_and_float32():
    vectors = random(3, 8)
    assert torch.equal(encode(vectors, "float32", Quantizer()), vectors)
    assert torch.equal(encode(vectors, "float16", Quantizer()), vectors.half())
