import json

import numpy as np
import pytest

from lazuli.outputs.calibration import calibrate
from lazuli_client import Ranges
from lazuli_client.errors import FileError


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)


@pytest.fixture
def file(tmp_path, vectors):
    path = tmp_path / "lazuli_calibration.json"
    calibrate(vectors, [2], normalize=False).write(path)
    return path


@pytest.mark.parametrize(("kind", "least"), [(np.uint8, 0), (np.int8, -128)])
def test_each_value_is_at_most_half_a_step_off(file, vectors, kind, least):
    ranges = Ranges.read(file)
    minimum, maximum = ranges.bounds[6]
    step = (maximum - minimum) / 255
    codes = (np.clip((vectors - minimum) / step, 0, 255).astype(np.int16) + least).astype(kind)
    off = np.abs(ranges.decode(codes) - vectors)
    assert (off <= step * 0.501).all()
    assert off.max() > 0


def test_cut_vectors_have_ranges_of_their_own(file):
    assert Ranges.read(file).decode(np.zeros((1, 2), np.uint8)).shape == (1, 2)
    with pytest.raises(ValueError, match=r"3 dimensions, but calibrated were \[2, 6\]"):
        Ranges.read(file).decode(np.zeros((1, 3), np.uint8))


def test_floats_are_not_decoded(file):
    with pytest.raises(ValueError, match="must be int8 or uint8, got float32"):
        Ranges.read(file).decode(np.zeros((1, 6), np.float32))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", json.dumps({"ranges": [{"dimensions": 2, "minimum": [0], "maximum": [1]}]})]
)
def test_another_file(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(FileError, match=r"x\.json: not what `lazuli calibrate` writes"):
        Ranges.read(path)


def test_no_file(tmp_path):
    with pytest.raises(FileError, match=r"x\.json"):
        Ranges.read(tmp_path / "x.json")
