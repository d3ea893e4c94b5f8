"""Wheels that travel in parts, and their installation without pip or a network.

Takes folders; knows no package. Uses nothing but Python, as a bare machine may have nothing else.
"""

import hashlib
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

SUMS = "SHA256SUMS"
_PART = ".part"


def split(wheels: Iterable[Path], out: Path, part_bytes: int) -> list[Path]:
    """Write wheels into folders `out/v1`, `out/v2`, ... of at most so many bytes each; a larger wheel in parts.

    Returns:
        The folders. The first has the sums of all wheels.
    """
    pieces = [piece for wheel in sorted(wheels) for piece in _pieces(wheel, part_bytes)]
    folders: list[Path] = []
    room = 0
    for name, wheel, start, size in sorted(pieces, key=lambda piece: -piece[3]):
        if size > room:
            folders.append(out / f"v{len(folders) + 1}")
            folders[-1].mkdir(parents=True)
            room = part_bytes
        with wheel.open("rb") as source:
            source.seek(start)
            (folders[-1] / name).write_bytes(source.read(size))
        room -= size
    sums = [f"{_sum(wheel)}  {wheel.name}\n" for wheel in sorted(wheels)]
    (folders[0] / SUMS).write_text("".join(sums), encoding="ascii")
    return folders


def join(parts: Path, out: Path) -> list[Path]:
    """Put the wheels of all folders below `parts` together in `out`, and check them.

    Raises:
        ValueError: If one is missing or damaged.
    """
    out.mkdir(parents=True, exist_ok=True)
    sums = next(parts.rglob(SUMS), None)
    if sums is None:
        raise ValueError(f"{parts} has no {SUMS}: it comes with the first part")
    wheels = []
    for line in sums.read_text(encoding="ascii").splitlines():
        expected, name = line.split("  ")
        wheel = out / name
        if not wheel.is_file() or _sum(wheel) != expected:
            with wheel.open("wb") as target:
                for piece in sorted([*parts.rglob(name), *parts.rglob(f"{name}{_PART}*")]):
                    if piece != wheel:
                        target.write(piece.read_bytes())
        if _sum(wheel) != expected:
            raise ValueError(f"{name} is damaged, or a part of it is missing")
        wheels.append(wheel)
    return wheels


def install(wheel: Path, site: Path, prefix: Path) -> None:
    """Unpack a wheel, as pip would but for scripts and compiled files."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            target = _target(member.filename, site, prefix)
            if target is None or member.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            if member.external_attr >> 16 & 0o111:
                target.chmod(0o755)


def _target(name: str, site: Path, prefix: Path) -> Path | None:
    """Where a member goes: what is in `NAME.data` has a place of its own."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return site / name
    kind, _, rest = rest.partition("/")
    places = {"purelib": site, "platlib": site, "data": prefix}
    return places[kind] / rest if kind in places else None


def _pieces(wheel: Path, part_bytes: int) -> list[tuple[str, Path, int, int]]:
    size = wheel.stat().st_size
    if size <= part_bytes:
        return [(wheel.name, wheel, 0, size)]
    starts = range(0, size, part_bytes)
    return [
        (f"{wheel.name}{_PART}{number:03}", wheel, start, min(part_bytes, size - start))
        for number, start in enumerate(starts)
    ]


def _sum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
