"""The folders of a model in a repository: put there and taken away, all of them or none.

Takes texts and files; knows nothing of what they mean. New folders are made beside the repository and then moved to
their places; a failure moves everything back.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lazuli.repository.errors import OutsideError

CONFIG = "config.pbtxt"
VERSION = "1"
_PREFIX = ".lazuli-"


@dataclass(frozen=True)
class FolderContent:
    """One folder of a model.

    Attributes:
        config: The text of its `config.pbtxt`.
        version: The content of the files in its version folder, by name.
    """

    config: str
    version: Mapping[str, bytes]

    @classmethod
    def read(cls, folder: Path) -> "FolderContent":
        """Read a folder."""
        files = sorted(path for path in (folder / VERSION).iterdir() if path.is_file())
        config = (folder / CONFIG).read_text(encoding="utf-8")
        return cls(config, {path.name: path.read_bytes() for path in files})

    def write(self, folder: Path) -> None:
        """Make the folder; it must not exist."""
        (folder / VERSION).mkdir(parents=True)
        for name, content in self.version.items():
            (folder / VERSION / name).write_bytes(content)
        (folder / CONFIG).write_text(self.config, encoding="utf-8")


def put(repository: Path, folders: Mapping[str, FolderContent], replaced: Sequence[str] = ()) -> None:
    """Put folders into a repository.

    Args:
        repository: Made if it does not exist.
        folders: Content by name; the last ones are those that call the others.
        replaced: Folders to take away.

    Raises:
        OutsideError: If the disk does not allow it; then nothing has changed.
    """
    made = [folder for folder in (repository, *repository.parents) if not folder.exists()]
    try:
        repository.mkdir(parents=True, exist_ok=True)
        with _staging(repository) as staging:
            for name, content in folders.items():
                content.write(staging / "new" / name)
            (staging / "old").mkdir()
            moves = [(repository / name, staging / "old" / name) for name in reversed(replaced)]
            moves += [(staging / "new" / name, repository / name) for name in folders]
            _move_all(moves)
    except BaseException as error:
        for folder in made:
            with suppress(OSError):  # not there, or somebody else's by now
                folder.rmdir()
        if isinstance(error, OSError):
            raise _disk_error(error) from error
        raise


def take_away(repository: Path, folders: Sequence[str]) -> None:
    """Remove folders, the last one first.

    Raises:
        OutsideError: If the disk does not allow it; then nothing has changed.
    """
    try:
        with _staging(repository) as staging:
            _move_all([(repository / name, staging / name) for name in reversed(folders)])
    except OSError as error:
        raise _disk_error(error) from error


@contextmanager
def _staging(repository: Path) -> Iterator[Path]:
    """A folder on the disk of the repository, removed with all that is left in it.

    Beside the repository if possible: left in it by a kill, it would keep a plain tritonserver from starting.
    """
    beside = repository.resolve().parent
    fits = os.access(beside, os.W_OK) and beside.stat().st_dev == repository.stat().st_dev
    staging = Path(tempfile.mkdtemp(dir=beside if fits else repository, prefix=_PREFIX))
    try:
        staging.chmod(0o755)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _move_all(moves: Sequence[tuple[Path, Path]]) -> None:
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            # A folder is only ever moved onto an empty place: `rename` would replace an empty folder.
            if target.exists():
                raise FileExistsError(f"{target} exists")
            os.rename(source, target)
            done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            os.rename(target, source)
        raise


def _disk_error(error: OSError) -> OutsideError:
    place = f"{error.filename}: " if error.filename else ""
    return OutsideError(f"nothing was changed: {place}{error.strerror or error}")
