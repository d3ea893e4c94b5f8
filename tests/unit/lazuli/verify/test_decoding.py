"""What encoded vectors stand for, against what encodes them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lazuli.errors import ConfigError
from lazuli.outputs.calibration import calibrate
from lazuli.outputs.quantize import Quantizer, encode, make_ranges
from lazuli.verify.decoding import decode

SIZE = 24


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(40, SIZE)).astype(np.float32)


def checkpoint(path, native=False):
    return SimpleNamespace(has_quantizer=native, path=path)


@pytest.mark.parametrize("encoding", ["int8", "uint8"])
def test_by_ranges(tmp_path, vectors, encoding):
    found = calibrate(vectors, [8], normalize=False)
    for size in (SIZE, 8):
        entry = found.ranges[found.places[size]]
        ranges = make_ranges(torch.tensor(entry.minimum), torch.tensor(entry.maximum), SIZE)[None]
        encoded = encode(torch.from_numpy(vectors[:, :size]), encoding, Quantizer(ranges=ranges)).numpy()
        if size == SIZE:
            found.write(tmp_path / "lazuli_calibration.json")
            decoded = decode(encoded, encoding, checkpoint(tmp_path))
            steps = (np.array(entry.maximum) - np.array(entry.minimum)) / 255
            assert (np.abs(decoded - vectors) <= steps * 0.51).sum() >= vectors.size - SIZE  # the greatest lies outside


def test_without_ranges(tmp_path):
    with pytest.raises(ConfigError, match="no file of `lazuli calibrate`, without which int8 means nothing"):
        decode(np.zeros((2, SIZE), np.int8), "int8", checkpoint(tmp_path))


def test_a_native_quantiser(tmp_path, vectors):
    encoded = encode(torch.from_numpy(vectors), "int8", Quantizer(native=True)).numpy()
    decoded = decode(encoded, "int8", checkpoint(tmp_path, native=True))
    np.testing.assert_allclose(decoded, np.tanh(vectors), atol=0.5 / 127 + 1e-6)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("encoding", ["binary", "ubinary"])
def test_bits(tmp_path, vectors, encoding, native):
    encoded = encode(torch.from_numpy(vectors), encoding, Quantizer(native=native)).numpy()
    np.testing.assert_array_equal(decode(encoded, encoding, checkpoint(tmp_path, native)), np.sign(vectors))


@pytest.mark.parametrize("encoding", ["float32", "float16"])
def test_floats(tmp_path, vectors, encoding):
    encoded = encode(torch.from_numpy(vectors), encoding, Quantizer()).numpy()
    decoded = decode(encoded, encoding, checkpoint(tmp_path))
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, vectors, rtol=1e-3)
