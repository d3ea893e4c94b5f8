"""Wheels in parts, and their installation."""

import zipfile

import pytest

from peers.vllm_h200 import is_needed
from peers.wheels import install, join, split


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, size in enumerate((10, 950, 2500)):
        (folder / f"w{number}-1-py3-none-any.whl").write_bytes(bytes((number + place) % 251 for place in range(size)))
    return sorted(folder.iterdir())


def test_parts_are_put_together_wherever_they_lie(tmp_path, wheels):
    folders = split(wheels, tmp_path / "out", 1000)
    assert [folder.name for folder in folders] == ["v1", "v2", "v3", "v4"]
    sizes = [sum(file.stat().st_size for file in folder.iterdir() if file.suffix != "") for folder in folders]
    assert sum(sizes) >= 10 + 950 + 2500
    assert max(sizes) <= 1000
    joined = join(tmp_path / "out", tmp_path / "joined")
    assert [(wheel.name, wheel.read_bytes()) for wheel in joined] == [(w.name, w.read_bytes()) for w in wheels]


def test_a_part_that_is_missing_is_told(tmp_path, wheels):
    split(wheels, tmp_path / "out", 1000)
    next((tmp_path / "out").rglob("w2*.part001")).unlink()
    with pytest.raises(ValueError, match=r"w2-1-py3-none-any\.whl is damaged, or a part of it is missing"):
        join(tmp_path / "out", tmp_path / "joined")


def test_without_the_sums_nothing_is_trusted(tmp_path, wheels):
    with pytest.raises(ValueError, match="has no SHA256SUMS"):
        join(wheels[0].parent, tmp_path / "joined")


def test_members_go_where_pip_would_put_them(tmp_path):
    wheel = tmp_path / "a-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/__init__.py", "x = 1")
        archive.writestr("a-1.data/purelib/b.py", "y = 2")
        archive.writestr("a-1.data/data/share/c", "z")
        archive.writestr("a-1.data/scripts/run", "no")
        tool = zipfile.ZipInfo("a/tool")
        tool.external_attr = 0o100755 << 16
        archive.writestr(tool, "#!")
    site, prefix = tmp_path / "site", tmp_path / "prefix"
    install(wheel, site, prefix)
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()) == [
        "a-1.whl",
        "prefix/share/c",
        "site/a/__init__.py",
        "site/a/tool",
        "site/b.py",
    ]
    assert (site / "a" / "tool").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("package", "needed"),
    [
        ("vllm", True),
        ("torch", False),
        ("torch_c_dlpack_ext", True),
        ("nvidia-cublas", False),
        ("nvidia-cutlass-dsl-libs-cu13", True),
        ("nvidia_cudnn_frontend", True),
        ("opencv-python-headless", False),
    ],
)
def test_what_the_machine_has_is_not_packed(package, needed):
    assert is_needed(package) is needed
