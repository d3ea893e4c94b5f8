import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from lazuli.repository.errors import RepositoryError
from lazuli.repository.weight_files import read_weight_files
from lazuli.weight_files import INDEX, SINGLE


def shards(folder, *tensors):
    names = [f"model-{number}-of-{len(tensors)}.safetensors" for number in range(1, len(tensors) + 1)]
    weight_map = {}
    for name, content in zip(names, tensors, strict=True):
        save_file(content, str(folder / name))
        weight_map |= dict.fromkeys(content, name)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return names


def floats(*shape):
    return np.zeros(shape, np.float32)


def test_one_file(tmp_path):
    save_file({"a": floats(2, 3), "ids": np.zeros(4, np.int64)}, str(tmp_path / SINGLE))
    weights = read_weight_files(tmp_path)
    assert (weights.num_parameters, weights.dtype, len(weights.files)) == (10, "float32", 1)
    assert weights.num_bytes == (tmp_path / SINGLE).stat().st_size


def test_shards(tmp_path):
    shards(tmp_path, {"a": floats(2)}, {"b": floats(3)})
    weights = read_weight_files(tmp_path)
    assert (weights.num_parameters, len(weights.files)) == (5, 2)


def test_bfloat16_is_named(tmp_path):
    import torch
    from safetensors.torch import save_file as save

    save({"a": torch.zeros(2, dtype=torch.bfloat16)}, str(tmp_path / SINGLE))
    assert read_weight_files(tmp_path).dtype == "bfloat16"


def test_a_missing_shard_is_named(tmp_path):
    names = shards(tmp_path, {"a": floats(2)}, {"b": floats(3)})
    (tmp_path / names[1]).unlink()
    with pytest.raises(RepositoryError, match=f"1 of 2 files that .* names are missing, the first is {names[1]}"):
        read_weight_files(tmp_path)


def test_a_tensor_that_is_in_no_shard_is_named(tmp_path):
    names = shards(tmp_path, {"a": floats(2)}, {"b": floats(3)})
    save_file({"c": floats(1)}, str(tmp_path / names[1]))
    with pytest.raises(RepositoryError, match="names 'b', which is in none of the files"):
        read_weight_files(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}'])
def test_a_bad_index_is_named(tmp_path, content):
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(RepositoryError, match=f"{INDEX} is not an index of weights"):
        read_weight_files(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "tf_model.h5"])
def test_old_formats_are_refused_with_the_way_out(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(
        RepositoryError, match=f"in {name}, a pickle or another old format, which is not read"
    ) as caught:
        read_weight_files(tmp_path)
    assert "save_pretrained" in caught.value.remedy
    assert str(tmp_path) in caught.value.remedy


def test_an_old_file_beside_the_new_one_does_not_matter(tmp_path):
    save_file({"a": floats(2)}, str(tmp_path / SINGLE))
    (tmp_path / "training_args.bin").write_bytes(b"x")
    assert read_weight_files(tmp_path).num_parameters == 2


def test_nothing_at_all(tmp_path):
    with pytest.raises(RepositoryError, match=r"has neither model\.safetensors nor model\.safetensors\.index\.json"):
        read_weight_files(tmp_path)


def test_a_file_that_was_cut_off_is_named(tmp_path):
    save_file({"a": floats(200)}, str(tmp_path / SINGLE))
    content = (tmp_path / SINGLE).read_bytes()
    for length in (0, 5, len(content) - 1):
        (tmp_path / SINGLE).write_bytes(content[:length])
        with pytest.raises(RepositoryError, match=r"model\.safetensors is not whole"):
            read_weight_files(tmp_path)


def test_a_pointer_of_git_lfs_is_known(tmp_path):
    (tmp_path / SINGLE).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(RepositoryError, match="is a pointer of Git LFS") as caught:
        read_weight_files(tmp_path)
    assert caught.value.remedy == "git lfs pull"
