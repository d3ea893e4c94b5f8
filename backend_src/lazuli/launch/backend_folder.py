"""Assembles the backend folder that the wheel's server needs: the Python backend and the stub of this Python.

Takes the wheel's server and a cache folder; returns the folder for `--backend-directory`. Does not know where
the wheel lies or what the server will load.
"""

import os
import shutil
import tempfile
from pathlib import Path

from lazuli.launch.server_binary import STUB_NAME, ServerBinary, python_tag


def assemble_backend(server: ServerBinary, cache: Path) -> Path:
    """Make the backend folder, unless an intact one is there.

    Copies, not links: the folder outlives the environment that it was made from.

    Args:
        server: The server of the wheel.
        cache: Folder that may hold several such folders.

    Returns:
        The folder that holds `python/`.
    """
    assert server.backend is not None, "only the wheel's server needs a folder"
    assert server.stub is not None, "the wheel's server has a stub"
    target = cache / "backends" / f"{server.version.replace(' ', '-')}-py{python_tag()}"
    files = _backend_files(server.backend, server.stub)
    if not _is_intact(target / "python", files):
        _replace(target, files)
    return target


def _backend_files(backend: Path, stub: Path) -> dict[str, Path]:
    files = {path.name: path for path in backend.iterdir() if path.is_file()}
    return files | {STUB_NAME: stub}


def _is_intact(folder: Path, files: dict[str, Path]) -> bool:
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == source.stat().st_size
        for name, source in files.items()
    )


def _replace(target: Path, files: dict[str, Path]) -> None:
    """Build beside the target and move it there: a second launcher never sees half a folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=target.parent, prefix=".building-"))
    try:
        (building / "python").mkdir()
        for name, source in files.items():
            shutil.copy2(source, building / "python" / name)
        (building / "python" / STUB_NAME).chmod(0o755)
        building.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        _move(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _move(building: Path, target: Path) -> None:
    try:
        os.rename(building, target)
    except OSError:
        # Another launcher was faster; its folder has the same files.
        if not target.is_dir():
            raise
