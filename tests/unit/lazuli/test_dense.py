import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lazuli.checkpoint import DENSE_ACTIVATIONS, load_checkpoint
from lazuli.config import EngineConfig
from lazuli.dense import _ACTIVATIONS, load_dense
from lazuli.engine import Engine
from lazuli.errors import ConfigError

CPU = torch.device("cpu")


@pytest.fixture
def write(tmp_path, write_bert):
    """A BERT of 32 dimensions, with layers of these sizes behind its pooling."""

    def write(*sizes, bias=False, activation="torch.nn.modules.linear.Identity"):
        write_bert(tmp_path)
        modules = json.loads((tmp_path / "modules.json").read_text())
        for number, (num_in, num_out) in enumerate(sizes):
            folder = tmp_path / f"{number}_Dense"
            folder.mkdir(exist_ok=True)
            config = {"in_features": num_in, "out_features": num_out, "bias": bias, "activation_function": activation}
            (folder / "config.json").write_text(json.dumps(config))
            generator = torch.Generator().manual_seed(number)
            tensors = {"linear.weight": torch.randn(num_out, num_in, generator=generator)}
            tensors |= {"linear.bias": torch.randn(num_out, generator=generator)} if bias else {}
            save_file(tensors, str(folder / "model.safetensors"))
            modules.insert(-1, {"type": "sentence_transformers.models.Dense", "path": folder.name})
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        return tmp_path

    return write


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", DENSE_ACTIVATIONS)
def test_against_torch(write, bias, activation):
    cls = getattr(torch.nn, activation)
    folder = write((32, 48), (48, 8), bias=bias, activation=f"{cls.__module__}.{activation}")
    layers = load_dense(load_checkpoint(str(folder)), 32, CPU)
    assert layers[-1].num_out == 8
    vectors = expected = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    for number, (num_in, num_out) in enumerate([(32, 48), (48, 8)]):
        vectors = layers[number](vectors)
        generator = torch.Generator().manual_seed(number)
        expected = expected @ torch.randn(num_out, num_in, generator=generator).T
        expected = cls()(expected + torch.randn(num_out, generator=generator) if bias else expected)
    torch.testing.assert_close(vectors, expected)


def test_what_checkpoints_may_name_can_be_computed():
    assert set(_ACTIVATIONS) == set(DENSE_ACTIVATIONS)


def test_most_checkpoints_have_none(tiny_checkpoint):
    assert load_dense(load_checkpoint(str(tiny_checkpoint)), 32, CPU) == []


@pytest.mark.parametrize("sizes", [((31, 8),), ((32, 48), (47, 8))])
def test_sizes_must_fit(write, sizes):
    with pytest.raises(ConfigError, match=r"config\.json: in_features: \d+, but \d+ come in"):
        load_dense(load_checkpoint(str(write(*sizes))), 32, CPU)


def test_another_shape_of_a_weight_is_named(write):
    folder = write((32, 48))
    save_file({"linear.weight": torch.zeros(48, 31)}, str(folder / "0_Dense" / "model.safetensors"))
    with pytest.raises(ConfigError, match=r"'linear\.weight' has shape \[48, 31\], expected \[48, 32\]"):
        load_dense(load_checkpoint(str(folder)), 32, CPU)


def test_an_engine_gives_vectors_of_the_last_layers_size(write):
    engine = Engine(EngineConfig(checkpoint=str(write((32, 48), (48, 8))), dtype="float32"), CPU)
    rows = [np.arange(length, dtype=np.int32) for length in (3, 9)]
    vectors = engine.embed_ids(rows, normalize=False)
    assert engine.dimension == 8
    assert vectors.shape == (2, 8)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(engine.embed_ids(rows), vectors / lengths, rtol=1e-5, atol=1e-6)
