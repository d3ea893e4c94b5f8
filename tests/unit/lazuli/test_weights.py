import json
import re

import pytest
import torch
from safetensors.torch import save_file

from lazuli.errors import ConfigError
from lazuli.weights import WeightReader

CPU = torch.device("cpu")


def save(folder, tensors, name="model.safetensors"):
    save_file(tensors, str(folder / name))
    return folder


def reader(folder, dtype=torch.float32, prefixes=()):
    return WeightReader(folder, CPU, dtype, prefixes)


TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


def test_tensors_come_by_name(tmp_path):
    weights = reader(save(tmp_path, TENSORS))
    assert weights.take("a.weight", 2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert weights.take("a.bias", 2).tolist() == [1, 1]
    weights.finish()


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16])
def test_they_are_converted(tmp_path, stored, wanted):
    save(tmp_path, {"a": torch.tensor([1.5, -2.0], dtype=stored)})
    tensor = reader(tmp_path, wanted).take("a", 2)
    assert (tensor.dtype, tensor.is_contiguous(), tensor.tolist()) == (wanted, True, [1.5, -2.0])


def test_a_tensor_does_not_share_memory_with_the_file(tmp_path):
    save(tmp_path, TENSORS)
    reader(tmp_path).take("a.bias", 2).fill_(9)
    assert reader(tmp_path).take("a.bias", 2).tolist() == [1, 1]


def test_one_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"the tensor 'b' is missing"):
        reader(save(tmp_path, TENSORS)).take("b", 2)


def test_none_is_handed_out_twice(tmp_path):
    weights = reader(save(tmp_path, TENSORS))
    weights.take("a.bias", 2)
    with pytest.raises(ConfigError, match=r"the tensor 'a\.bias' is missing"):
        weights.take("a.bias", 2)


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 3, 1), ()])
def test_another_shape_is_named_with_the_expected_one(tmp_path, shape):
    text = f"the tensor 'a.weight' has shape [2, 3], expected {list(shape)}"
    with pytest.raises(ConfigError, match=re.escape(text)):
        reader(save(tmp_path, TENSORS)).take("a.weight", *shape)


def test_whether_there_is_one(tmp_path):
    save(tmp_path, {"bert.a.weight": TENSORS["a.weight"]})
    weights = reader(tmp_path, prefixes=("bert.",))
    assert "a.weight" in weights
    assert "b.weight" not in weights
    weights.take("a.weight", 2, 3)
    assert "a.weight" not in weights


class TestFinish:
    def test_what_is_left_over_is_named(self, tmp_path):
        weights = reader(save(tmp_path, TENSORS))
        weights.take("a.bias", 2)
        with pytest.raises(ConfigError, match=r"1 tensors are left over: a\.weight$"):
            weights.finish()

    def test_many_are_counted_and_five_are_named(self, tmp_path):
        weights = reader(save(tmp_path, {f"t{number}": torch.ones(1) for number in range(8)}))
        with pytest.raises(ConfigError, match=r"8 tensors are left over: t0, t1, t2, t3, t4, \.\.\.$"):
            weights.finish()

    def test_patterns_cover_what_is_not_needed(self, tmp_path):
        weights = reader(save(tmp_path, TENSORS))
        weights.finish(["a.*"])
        with pytest.raises(ConfigError, match="1 tensors are left over"):
            weights.finish(["a.w*"])


class TestPrefix:
    def test_it_is_left_out_of_the_names(self, tmp_path):
        save(
            tmp_path,
            {f"bert.{name}": tensor for name, tensor in TENSORS.items()} | {"cls.bias": torch.ones(1)},
        )
        weights = reader(tmp_path, prefixes=("bert.",))
        assert weights.take("a.bias", 2).tolist() == [1, 1]
        assert weights.take("cls.bias", 1).tolist() == [1]

    def test_it_is_stripped_once_and_only_at_the_start(self, tmp_path):
        save(tmp_path, {"bert.bert.x": torch.ones(1), "y.bert.z": torch.ones(1)})
        weights = reader(tmp_path, prefixes=("bert.",))
        assert weights.take("bert.x", 1).tolist() == [1]
        assert weights.take("y.bert.z", 1).tolist() == [1]

    def test_two_tensors_of_one_name_are_refused(self, tmp_path):
        save(tmp_path, {"bert.x": torch.ones(1), "x": torch.zeros(1)})
        with pytest.raises(ConfigError, match="the tensor 'x' is stored twice"):
            reader(tmp_path, prefixes=("bert.",))


class TestFiles:
    def write_index(self, folder, **weight_map):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    def test_shards(self, tmp_path):
        save(tmp_path, {"a.weight": TENSORS["a.weight"]}, "model-1-of-2.safetensors")
        save(tmp_path, {"a.bias": TENSORS["a.bias"]}, "model-2-of-2.safetensors")
        self.write_index(tmp_path, **{"a.weight": "model-1-of-2.safetensors", "a.bias": "model-2-of-2.safetensors"})
        weights = reader(tmp_path)
        assert weights.take("a.bias", 2).tolist() == [1, 1]
        assert weights.take("a.weight", 2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
        weights.finish()

    def test_a_missing_shard_is_named(self, tmp_path):
        self.write_index(tmp_path, a="model-1-of-1.safetensors")
        with pytest.raises(ConfigError, match=r"1 of 1 files .* the first is model-1-of-1\.safetensors"):
            reader(tmp_path)

    def test_nothing(self, tmp_path):
        with pytest.raises(ConfigError, match=r"has neither model\.safetensors nor"):
            reader(tmp_path)

    def test_a_pickle_is_not_read(self, tmp_path):
        (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
        with pytest.raises(ConfigError, match=r"in pytorch_model\.bin, a pickle"):
            reader(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 9\n", b"<html>not found</html>"]
)
def test_a_file_that_is_none_is_named(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(
        ConfigError, match=rf"model\.safetensors: {len(content)} bytes that are no whole safetensors file"
    ):
        WeightReader(tmp_path, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"weight_map": []}'])
def test_an_index_without_a_map_is_named(tmp_path, content):
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ConfigError, match=r"index\.json is not an index of weights"):
        WeightReader(tmp_path, torch.device("cpu"), torch.float32)


class TestRows:
    """Some rows of a matrix."""

    MATRIX = torch.arange(12.0, dtype=torch.bfloat16).reshape(4, 3)

    def test_they_come_in_the_order_asked_for(self, tmp_path):
        rows = reader(save(tmp_path, {"a": self.MATRIX})).take_rows("a", [3, 0], 4, 3)
        assert (rows.dtype, rows.tolist()) == (torch.float32, [[9, 10, 11], [0, 1, 2]])

    def test_the_shape_is_that_of_the_whole(self, tmp_path):
        with pytest.raises(ConfigError, match=r"the tensor 'a' has shape \[4, 3\], expected \[2, 3\]"):
            reader(save(tmp_path, {"a": self.MATRIX})).take_rows("a", [1], 2, 3)

    def test_one_that_is_missing_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match="the tensor 'b' is missing"):
            reader(save(tmp_path, {"a": self.MATRIX})).take_rows("b", [1], 4, 3)
