import json

import numpy as np
import pytest

from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.outputs.calibration import FILE_NAME, Calibration, calibrate, find_calibration

VECTORS = np.random.default_rng(1).standard_normal((30, 32)).astype(np.float32)


@pytest.fixture
def checkpoint(tmp_path, write_bert):
    return load_checkpoint(str(write_bert(tmp_path)))


class TestCalibrate:
    def test_least_and_greatest_values(self):
        found = calibrate(VECTORS, (), normalize=False)
        assert (found.dimension, found.normalize, found.texts, len(found.ranges)) == (32, False, 30, 1)
        np.testing.assert_array_equal(found.ranges[0].minimum, VECTORS.min(axis=0))
        np.testing.assert_array_equal(found.ranges[0].maximum, VECTORS.max(axis=0))

    def test_cut_then_scaled(self):
        found = calibrate(VECTORS, (8, 32, 8), normalize=True)
        assert found.places == {32: 0, 8: 1}
        cut = VECTORS[:, :8] / np.linalg.norm(VECTORS[:, :8], axis=1, keepdims=True)
        np.testing.assert_allclose(found.ranges[1].maximum, cut.max(axis=0), rtol=1e-6)

    @pytest.mark.parametrize(
        ("vectors", "dimensions", "text"),
        [
            (VECTORS[:1], (), "texts: 1, but at least 2"),
            (VECTORS, (33,), "dimensions: 33, but the model's vectors have 32"),
            (VECTORS, (0,), "dimensions: 0, but"),
        ],
    )
    def test_what_cannot_be(self, vectors, dimensions, text):
        with pytest.raises(ConfigError, match=text):
            calibrate(vectors, dimensions, normalize=False)

    def test_more_ranges_than_a_code_can_tell_apart(self):
        with pytest.raises(ConfigError, match="129 numbers, but at most 128"):
            calibrate(np.ones((2, 200), np.float32), range(1, 129), normalize=False)


class TestFile:
    def test_there_and_back(self, checkpoint, tmp_path):
        made = calibrate(VECTORS, (8,), normalize=True)
        for path, given in ((tmp_path / "other.json", str(tmp_path / "other.json")), (tmp_path / FILE_NAME, None)):
            made.write(path)
            assert find_calibration(given, checkpoint, 32) == made

    def test_without_one(self, checkpoint):
        assert find_calibration(None, checkpoint, 32) is None

    def test_one_that_was_named_must_be_there(self, checkpoint, tmp_path):
        with pytest.raises(ConfigError, match=r"calibration: .*none\.json: No such file"):
            find_calibration(str(tmp_path / "none.json"), checkpoint, 32)

    def test_of_another_model(self, checkpoint, tmp_path):
        calibrate(VECTORS, (), normalize=True).write(tmp_path / FILE_NAME)
        with pytest.raises(ConfigError, match="of a model of 32 dimensions, this one has 64"):
            find_calibration(None, checkpoint, 64)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda content: "not JSON",
            lambda content: "[]",
            lambda content: json.dumps(content | {"version": 9}),
            lambda content: json.dumps(content | {"ranges": []}),
            lambda content: json.dumps({name: content[name] for name in content if name != "normalize"}),
            lambda content: json.dumps(content | {"ranges": [content["ranges"][0] | {"minimum": [1.0]}]}),
            lambda content: json.dumps(content | {"ranges": [content["ranges"][0] | {"dimensions": 8}]}),
            lambda content: json.dumps(content | {"ranges": [content["ranges"][0] | {"maximum": [float("nan")] * 32}]}),
        ],
    )
    def test_a_damaged_one(self, checkpoint, tmp_path, damage):
        file = tmp_path / FILE_NAME
        calibrate(VECTORS, (), normalize=True).write(file)
        file.write_text(damage(json.loads(file.read_text())))
        with pytest.raises(ConfigError, match="is not what `lazuli calibrate` writes"):
            find_calibration(None, checkpoint, 32)

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(ConfigError, match="cannot be written: No such file"):
            Calibration(1, False, 2, ()).write(tmp_path / "none" / "x.json")
