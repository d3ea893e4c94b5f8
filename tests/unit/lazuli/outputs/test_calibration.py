import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.outputs.calibration import FILE_NAME, Calibration, calibrate, find_calibration
from lazuli.outputs.fingerprint import fingerprint

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

    @pytest.mark.parametrize("noise", [0, 1e-6])
    def test_texts_that_are_all_alike(self, noise):
        vectors = np.repeat(VECTORS[:1], 3, axis=0)
        vectors[1] *= 1 + noise
        with pytest.raises(
            ConfigError, match="all 3 have the same value in each of 32 dimensions, so there are no ranges"
        ):
            calibrate(vectors, (8,), normalize=False)

    def test_some_dimensions_of_one_value_are_counted(self):
        vectors = VECTORS.copy()
        vectors[:, 3:8] = 0.5
        assert calibrate(vectors, (), normalize=False).ranges[0].num_flat == 5

    def test_more_ranges_than_a_code_can_tell_apart(self):
        with pytest.raises(ConfigError, match="129 numbers, but at most 128"):
            calibrate(np.ones((2, 200), np.float32), range(1, 129), normalize=False)


def changed(**fields):
    """A file whose range has other fields."""
    return lambda content: json.dumps(content | {"ranges": [content["ranges"][0] | fields]})


class TestStale:
    @pytest.fixture
    def file(self, checkpoint, tmp_path):
        made = calibrate(VECTORS, (), normalize=True, fingerprint=fingerprint(checkpoint, "mean"))
        made.write(tmp_path / FILE_NAME)
        assert find_calibration(None, checkpoint, 32, "mean") == made
        return tmp_path / FILE_NAME

    def test_the_same_checkpoint_elsewhere(self, file, checkpoint, tmp_path_factory):
        folder = tmp_path_factory.mktemp("copy") / "here"
        shutil.copytree(checkpoint.path, folder)
        assert find_calibration(None, load_checkpoint(str(folder)), 32, "mean") is not None

    def test_another_pooling(self, file, checkpoint):
        with pytest.raises(ConfigError, match="is stale: made with pooling 'mean', but the model now has 'cls'; run"):
            find_calibration(None, checkpoint, 32, "cls")
        assert find_calibration(None, checkpoint, 32) is not None  # where it is not known

    def test_other_weights_of_the_same_size(self, file, checkpoint):
        weights = checkpoint.path / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-100] ^= 255
        weights.write_bytes(content)
        with pytest.raises(ConfigError, match="is stale: made with weights"):
            find_calibration(None, checkpoint, 32, "mean")

    def test_normalised_or_not(self, file, checkpoint):
        with pytest.raises(ConfigError, match="is stale: made with normalize"):
            find_calibration(None, replace(checkpoint, normalize=not checkpoint.normalize), 32, "mean")

    def test_a_file_that_does_not_say(self, checkpoint, tmp_path, caplog):
        calibrate(VECTORS, (), normalize=True).write(tmp_path / FILE_NAME)
        assert find_calibration(None, checkpoint, 32, "mean") is not None
        assert "does not say of which checkpoint" in caplog.text


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
        ("damage", "said"),
        [
            (lambda content: "not JSON", "Expecting value"),
            (lambda content: "[]", "list indices"),
            (lambda content: json.dumps(content | {"version": 9}), "version: 9, not 1"),
            (lambda content: json.dumps(content | {"dimension": "32"}), "dimension: '32', but"),
            (lambda content: json.dumps(content | {"normalize": "false"}), "normalize: 'false', but"),
            (lambda content: json.dumps(content | {"ranges": []}), "ranges: 0, but"),
            (lambda content: json.dumps(content | {"fingerprint": 3}), "fingerprint: must be an object"),
            (
                lambda content: json.dumps({name: content[name] for name in content if name != "normalize"}),
                "'normalize' is missing",
            ),
            (changed(minimum=[1.0]), r"ranges\[0\].minimum: of shape \[1\], but there are 32 dimensions"),
            (changed(minimum=["a"] * 32), r"ranges\[0\].minimum: must be a list of numbers"),
            (changed(minimum=[[1.0], 2.0]), r"ranges\[0\].minimum: must be a list of numbers"),
            (changed(dimensions=8), r"ranges\[0\].minimum: of shape \[32\], but there are 8 dimensions"),
            (changed(dimensions=33), r"ranges\[0\].dimensions: 33, but the model has 32"),
            (changed(dimensions=-1), r"ranges\[0\].dimensions: -1, but"),
            (changed(maximum=[9.0] * 31 + [float("nan")]), r"ranges\[0\].maximum\[31\]: nan is no number"),
            (changed(maximum=[1e39] * 32), r"ranges\[0\].maximum\[0\]: 1e\+39 is no number"),
            (changed(maximum=[9.0, -9.0] + [9.0] * 30), r"ranges\[0\].maximum\[1\]: -9.0 is below the minimum"),
            (changed(minimum=[1.0] * 32, maximum=[1.0] * 32), r"ranges\[0\].maximum: as the minimum in all 32"),
        ],
    )
    def test_a_damaged_one_names_the_field(self, checkpoint, tmp_path, damage, said):
        file = tmp_path / FILE_NAME
        calibrate(VECTORS, (), normalize=True).write(file)
        file.write_text(damage(json.loads(file.read_text())))
        with pytest.raises(ConfigError, match=f"{file} is not what `lazuli calibrate` writes; remove it .*{said}"):
            find_calibration(None, checkpoint, 32)

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(ConfigError, match="cannot be written: No such file"):
            Calibration(1, False, 2, ()).write(tmp_path / "none" / "x.json")
