"""Wheels unpacked, packed as one archive, cut into parts, and put together."""

import os
import zipfile

import pytest

from peers.wheels import install, join, pack_folder, split, unpack


@pytest.fixture
def file(tmp_path):
    whole = tmp_path / "site.tar.xz"
    whole.write_bytes(bytes(place % 251 for place in range(2500)))
    return whole


def test_parts_are_put_together_wherever_they_lie(tmp_path, file):
    folders = split(file, tmp_path / "out", 1000)
    assert [folder.name for folder in folders] == ["v1", "v2", "v3"]
    parts = sorted((tmp_path / "out").rglob("*.part*"))
    assert [part.stat().st_size for part in parts] == [1000, 1000, 500]
    parts[0].rename(tmp_path / "out" / parts[0].name)
    assert join(tmp_path / "out", tmp_path / "joined").read_bytes() == file.read_bytes()


def test_a_part_that_is_missing_is_told(tmp_path, file):
    split(file, tmp_path / "out", 1000)
    next((tmp_path / "out").rglob("*.part002")).unlink()
    with pytest.raises(ValueError, match=r"site\.tar\.xz is damaged, or a part of it is missing"):
        join(tmp_path / "out", tmp_path / "joined")


def test_without_the_sums_nothing_is_trusted(tmp_path):
    with pytest.raises(ValueError, match="has no SHA256SUMS"):
        join(tmp_path, tmp_path / "joined")


def test_a_folder_comes_back_as_it_was(tmp_path):
    site = tmp_path / "site"
    (site / "a").mkdir(parents=True)
    (site / "a" / "tool").write_text("#!")
    (site / "a" / "tool").chmod(0o755)
    archives = [tmp_path / "1.tar.xz", tmp_path / "2.tar.xz"]
    for time, archive in enumerate(archives):
        os.utime(site / "a" / "tool", (time, time))
        pack_folder(site, archive)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    unpack(archives[0], tmp_path / "there")
    assert (tmp_path / "there" / "a" / "tool").read_text() == "#!"
    assert (tmp_path / "there" / "a" / "tool").stat().st_mode & 0o111


def test_members_go_where_pip_would_put_them(tmp_path):
    wheel = tmp_path / "a-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/__init__.py", "x = 1")
        archive.writestr("a/needless.so", "x")
        archive.writestr("a-1.data/purelib/b.py", "y = 2")
        archive.writestr("a-1.data/data/share/c", "z")
        archive.writestr("a-1.data/scripts/run", "no")
        tool = zipfile.ZipInfo("a/tool")
        tool.external_attr = 0o100755 << 16
        archive.writestr(tool, "#!")
    site, prefix = tmp_path / "site", tmp_path / "prefix"
    install(wheel, site, prefix, lambda name: name != "a/needless.so")
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()) == [
        "a-1.whl",
        "prefix/share/c",
        "site/a/__init__.py",
        "site/a/tool",
        "site/b.py",
    ]
    assert (site / "a" / "tool").stat().st_mode & 0o111
