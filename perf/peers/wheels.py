"""What travels in parts: wheels unpacked into a folder, packed again as one archive, cut, and put together.

Takes folders; knows no package. Uses nothing but Python, as a bare machine may have nothing else.
"""

import hashlib
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

SUMS = "SHA256SUMS"
_PART = ".part"


def install(wheel: Path, site: Path, prefix: Path, is_wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Unpack a wheel, as pip would but for scripts and compiled files.

    Args:
        wheel: The file.
        site: For packages.
        prefix: For what a wheel calls data.
        is_wanted: Told the name of each file; those that it does not want are left out.
    """
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            target = _target(member.filename, site, prefix)
            if target is None or member.is_dir() or not is_wanted(member.filename):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            if member.external_attr >> 16 & 0o111:
                target.chmod(0o755)


def pack_folder(folder: Path, archive: Path) -> None:
    """Write all that is in a folder into a `.tar.xz`, the same for the same files."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:xz") as target:
        for each in sorted(folder.iterdir()):
            target.add(each, each.name, filter=anonymous)


def unpack(archive: Path, folder: Path) -> None:
    """Write what `pack_folder` packed into a folder."""
    with tarfile.open(archive, "r|xz") as source:
        source.extractall(folder, filter="tar")


def split(file: Path, out: Path, part_bytes: int) -> list[Path]:
    """Cut a file into parts of at most so many bytes, each in a folder of its own: `out/v1`, `out/v2`, ...

    Returns:
        The folders. The first has the sum of the whole as well.
    """
    folders: list[Path] = []
    with file.open("rb") as source:
        while part := source.read(part_bytes):
            folders.append(out / f"v{len(folders) + 1}")
            folders[-1].mkdir(parents=True)
            (folders[-1] / f"{file.name}{_PART}{len(folders):03}").write_bytes(part)
    (folders[0] / SUMS).write_text(f"{_sum(file)}  {file.name}\n", encoding="ascii")
    return folders


def join(parts: Path, out: Path) -> Path:
    """Put the parts that lie in `parts`, or in folders below it, together in `out`.

    Raises:
        ValueError: If one is missing or damaged.
    """
    sums = next(parts.rglob(SUMS), None)
    if sums is None:
        raise ValueError(f"{parts} has no {SUMS}: it comes with the first part")
    expected, name = sums.read_text(encoding="ascii").split()
    whole = out / name
    out.mkdir(parents=True, exist_ok=True)
    with whole.open("wb") as target:
        for part in sorted(parts.rglob(f"{name}{_PART}*"), key=lambda part: part.name):
            target.write(part.read_bytes())
    if _sum(whole) != expected:
        raise ValueError(f"{name} is damaged, or a part of it is missing")
    return whole


def _target(name: str, site: Path, prefix: Path) -> Path | None:
    """Where a member goes: what is in `NAME.data` has a place of its own."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return site / name
    kind, _, rest = rest.partition("/")
    places = {"purelib": site, "platlib": site, "data": prefix}
    return places[kind] / rest if kind in places else None


def _sum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
