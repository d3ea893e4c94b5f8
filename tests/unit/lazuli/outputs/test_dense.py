import numpy as np
import pytest
import torch

from lazuli.checkpoint import load_checkpoint
from lazuli.config import EngineConfig
from lazuli.errors import ConfigError, NonFiniteError, OptionError
from lazuli.options import RequestOptions
from lazuli.outputs.calibration import calibrate
from lazuli.outputs.dense import DenseModel
from lazuli.outputs.finish import Finish, finish
from lazuli.outputs.matryoshka import ANY_DIMENSIONS, Matryoshka

SIZE = 16
VECTORS = np.random.default_rng(0).standard_normal((40, SIZE)).astype(np.float32)


def model(native=False, normalize=False, matryoshka=ANY_DIMENSIONS, calibrated=()):
    calibration = calibrate(VECTORS, calibrated, normalize=normalize) if calibrated else None
    return DenseModel(SIZE, normalize, matryoshka, native, calibration)


def ask(offered, vectors=VECTORS, **options):
    """What a request gets, by way of the device's rows."""
    form = offered.choose(RequestOptions(**{name: (v,) if name == "output" else v for name, v in options.items()}))
    codes = torch.full((len(vectors),), form.finish, dtype=torch.int32)
    rows = finish(torch.from_numpy(vectors.copy()), codes, offered.quantizer()).numpy()
    outputs = form.read(np.arange(len(vectors), dtype=np.int32), rows)
    laid_out = form.lay_out(np.ones(len(vectors), np.int32))
    assert {name: (part.dtype, part.shape) for name, part in laid_out.items()} == {
        name: (part.dtype, part.shape) for name, part in outputs.items()
    }
    ((name, values),) = outputs.items()
    assert values.flags.c_contiguous
    return name, values


class TestForms:
    @pytest.mark.parametrize(
        ("output", "name", "dtype", "columns"),
        [
            ("float32", "embedding", np.float32, 16),
            ("float16", "embedding_float16", np.float16, 16),
            ("int8", "embedding_int8", np.int8, 16),
            ("uint8", "embedding_uint8", np.uint8, 16),
            ("binary", "embedding_binary", np.int8, 2),
            ("ubinary", "embedding_ubinary", np.uint8, 2),
        ],
    )
    def test_name_type_and_shape(self, output, name, dtype, columns):
        found, values = ask(model(calibrated=[16]), output=output)
        assert (found, values.dtype, values.shape) == (name, dtype, (40, columns))

    def test_a_quantiser_of_its_own_makes_a_byte_of_each_sign(self):
        name, values = ask(model(native=True), output="binary")
        assert (name, values.dtype) == ("embedding_binary", np.int8)
        assert values.tolist() == np.where(VECTORS >= 0, 1, -1).tolist()
        assert ask(model(native=True), output="ubinary")[1].tolist() == np.packbits(VECTORS >= 0, axis=1).tolist()

    def test_float32_needs_no_copy(self):
        form = model().choose(RequestOptions())
        assert form.read(np.arange(40), VECTORS)["embedding"] is VECTORS

    @pytest.mark.parametrize(("option", "default"), [(None, True), (None, False), (True, False), (False, True)])
    def test_the_option_overrules_the_models_normalisation(self, option, default):
        form = model(normalize=default).choose(RequestOptions(normalize=option))
        assert form.finish == Finish(default if option is None else option).code

    def test_cut_vectors(self):
        _, values = ask(model(normalize=True), dimensions=4)
        cut = VECTORS[:, :4]
        np.testing.assert_allclose(values, cut / np.linalg.norm(cut, axis=1, keepdims=True), rtol=1e-6)
        assert ask(model(), dimensions=SIZE)[1].tolist() == VECTORS.tolist()
        assert ask(model(), output="float16", dimensions=5)[1].shape == (40, 5)


class TestNotFinite:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("output", ["float32", "float16", "int8", "uint8", "binary", "ubinary"])
    @pytest.mark.parametrize("dimensions", [None, 8])
    def test_the_row_is_named(self, bad, output, dimensions):
        vectors = VECTORS.copy()
        vectors[3, 15] = bad
        offered = model(calibrated=[8])
        name = "embedding" if output == "float32" else f"embedding_{output}"
        with pytest.raises(NonFiniteError, match=rf"^{name}\[3\]: the model computed NaN or Inf"):
            ask(offered, vectors, output=output, dimensions=dimensions)

    def test_what_float16_cannot_hold_is_named(self):
        vectors = VECTORS.copy()
        vectors[7, 2] = -70000
        with pytest.raises(NonFiniteError, match=r"^embedding_float16\[7\]: a value is beyond 65504"):
            ask(model(), vectors, output="float16")
        assert ask(model(), vectors, output="float16", normalize=True)[1].dtype == np.float16

    def test_rows_are_those_of_the_request(self):
        form = model().choose(RequestOptions())
        values = np.array([[1] * 16, [np.nan] * 16], dtype=np.float32)
        with pytest.raises(NonFiniteError, match=r"embedding\[9\]"):
            form.read(np.array([4, 9], dtype=np.int32), values)


class TestRefusals:
    def refuse(self, offered, match, **options):
        with pytest.raises(OptionError, match=match):
            ask(offered, **options)

    def test_more_dimensions_than_there_are(self):
        self.refuse(model(), "dimensions: 17, but the model's vectors have 16", dimensions=17)

    def test_a_model_whose_vectors_are_not_to_be_cut(self):
        offered = model(matryoshka=Matryoshka(False))
        self.refuse(offered, r"dimensions: 8, .* not known to be trained .* force_dimensions=true", dimensions=8)
        assert ask(offered, dimensions=8, force_dimensions=True)[1].shape == (40, 8)
        assert ask(offered, dimensions=16)[1].shape == (40, 16)

    def test_a_model_with_a_list(self):
        offered = model(matryoshka=Matryoshka(True, (4, 8)))
        self.refuse(offered, "dimensions: 6, but .* cut to 4, 8; pass force", dimensions=6)
        assert ask(offered, dimensions=8)[1].shape == (40, 8)
        assert ask(offered, dimensions=6, force_dimensions=True)[1].shape == (40, 6)

    @pytest.mark.parametrize("output", ["int8", "uint8"])
    def test_integers_without_calibration(self, output):
        self.refuse(model(), rf"output: {output} needs .* run `lazuli calibrate`", output=output)

    def test_integers_of_other_dimensions_than_calibrated(self):
        self.refuse(
            model(calibrated=[8]), "dimensions: 4, but int8 was calibrated for 16, 8; ", output="int8", dimensions=4
        )

    @pytest.mark.parametrize("normalize", [False, True])
    def test_integers_scaled_otherwise_than_calibrated(self, normalize):
        text = rf"normalize: {str(not normalize).lower()}, but int8 was calibrated"
        self.refuse(model(calibrated=[8], normalize=normalize), text, output="int8", normalize=not normalize)

    def test_a_quantiser_of_its_own(self):
        self.refuse(model(native=True), "output: uint8: the model's own quantiser makes int8", output="uint8")
        self.refuse(model(native=True), "normalize: true, but int8 of this model", output="int8", normalize=True)

    @pytest.mark.parametrize("output", ["binary", "ubinary"])
    def test_bits_that_do_not_fill_bytes(self, output):
        self.refuse(model(), f"output: {output} packs eight .* vectors have 12", output=output, dimensions=12)

    @pytest.mark.parametrize("output", ["sparse", "multi"])
    def test_outputs_of_other_models(self, output):
        self.refuse(model(), f"output: {output}: the model has no such output", output=output)


def test_ranges_of_each_number_of_dimensions_are_used():
    offered = model(calibrated=[8, 4], normalize=True)
    for count in (16, 8, 4):
        cut = VECTORS[:, :count] / np.linalg.norm(VECTORS[:, :count], axis=1, keepdims=True)
        least, most = cut.min(axis=0), cut.max(axis=0)
        expected = ((cut - least) / ((most - least) / 255)).astype(np.float32)
        values = ask(offered, output="uint8", dimensions=count)[1]
        assert np.abs(values - expected).max() <= 1.001
        assert (values.min(axis=0) == 0).all()
        assert (values.max(axis=0) >= 254).all()


class TestRead:
    def test_of_a_checkpoint_that_says_nothing(self, tiny_checkpoint):
        found = DenseModel.read(load_checkpoint(str(tiny_checkpoint)), EngineConfig(), 32)
        assert found == DenseModel(32, True, Matryoshka(False))

    def test_parameters(self, tiny_checkpoint, tmp_path):
        file = tmp_path / "ranges.json"
        calibration = calibrate(VECTORS, (), normalize=True)
        calibration.write(file)
        config = EngineConfig(matryoshka="yes", calibration=str(file))
        found = DenseModel.read(load_checkpoint(str(tiny_checkpoint)), config, SIZE)
        assert found == DenseModel(SIZE, True, Matryoshka(True), False, calibration)
        with pytest.raises(ConfigError, match="is of a model of 16 dimensions, this one has 32"):
            DenseModel.read(load_checkpoint(str(tiny_checkpoint)), config, 32)

    def test_perplexitys_models_have_a_quantiser(self, tmp_path, write_bert):
        folder = write_bert(tmp_path, architectures=["PPLXQwen3Model"])
        found = DenseModel.read(load_checkpoint(str(folder)), EngineConfig(), 32)
        assert found.native
        assert found.matryoshka == Matryoshka(True)
        assert found.quantizer().native
