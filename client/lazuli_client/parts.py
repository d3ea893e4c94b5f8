"""What a bulk job has done so far, kept beside the output so that an interrupted job can be resumed.

Takes Arrow tables, returns them in order. The folder `OUT.parts` holds a manifest and files that are only
ever added, each whole or not there at all:

    manifest.json                     input and options; a resume with others is refused
    part-<first row>-<rows>.arrow     results, one after the other without a gap
    output                            the finished output, before it is moved to OUT
    publishing                        marks that `output` is complete and about to be moved
    lock                              held while a job runs

Does not know texts, vectors or servers.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lazuli_client.errors import FileError
from lazuli_client.files import naming

try:
    import fcntl
except ImportError:  # Windows: two jobs on one output are then not noticed
    fcntl = None  # type: ignore[assignment, unused-ignore]

_PART = re.compile(r"part-(\d+)-(\d+)\.arrow")


class Parts:
    """The folder of one job. Use it as a context manager: it holds the lock.

    Args:
        output: Where the output will be.
        manifest: Input and options of the job, JSON values.
        restart: Whether to throw away what an earlier job left.

    Raises:
        FileError: If another job runs, or what is there belongs to other input or options.
    """

    def __init__(self, output: Path, manifest: dict[str, Any], *, restart: bool = False) -> None:
        self._output = output
        self._folder = _folder(output)
        self._trash = output.with_name(output.name + ".parts.done")
        self._files: list[tuple[int, Path]] = []
        self._schema: pa.Schema | None = None
        self.num_rows = 0
        shutil.rmtree(self._trash, ignore_errors=True)
        self._folder.mkdir(exist_ok=True)
        self._lock = self._take_lock()
        try:
            self.was_published = self._marker.exists() and not self.staged.exists() and output.exists()
            if restart or (self.was_published and self._changes(manifest)):
                self._clear()
            elif not self.was_published:
                self._marker.unlink(missing_ok=True)
            self._check_manifest(manifest)
            self._find_parts()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()
        if not self.num_rows:  # nothing to resume: leave no litter
            self._remove()

    @property
    def staged(self) -> Path:
        """Where to write the output before it is published; on the same file system as its final place."""
        return self._folder / "output"

    def append(self, table: pa.Table) -> None:
        """Add results; once this returns they survive a crash.

        Raises:
            FileError: If the columns differ from those before, as with a model of other dimensions.
        """
        if self._schema is not None and table.schema != self._schema:
            raise FileError(
                f"{self._folder}: the new results do not fit those of before the interruption: "
                f"{_difference(self._schema, table.schema)}; start over with --no-resume"
            )
        path = self._folder / f"part-{self.num_rows:012d}-{table.num_rows}.arrow"
        with (
            naming(path),
            _Durable(path) as temporary,
            pa.OSFile(str(temporary), "wb") as file,
            pa.ipc.new_file(file, table.schema) as out,
        ):
            out.write_table(table)
        self._schema = table.schema
        self._files.append((self.num_rows, path))
        self.num_rows += table.num_rows

    def tables(self) -> Iterator[pa.Table]:
        """All results in order, one file in memory at a time."""
        for _, path in self._files:
            with naming(path), pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
                table = reader.read_all()
            yield table

    def publish(self) -> None:
        """Move the staged output to its place, at once or not at all, and remove the folder."""
        with naming(self.staged):
            _sync(self.staged)
        self._marker.touch()
        os.replace(self.staged, self._output)
        self._remove()

    def finish(self) -> None:
        """Remove the folder of a job that was interrupted after it had published its output."""
        self._remove()

    def _remove(self) -> None:
        self.num_rows = 0
        if self._folder.exists():
            # Renamed first: a folder that is half deleted must not be taken for a job to resume.
            shutil.rmtree(self._trash, ignore_errors=True)
            os.replace(self._folder, self._trash)
            shutil.rmtree(self._trash)

    @property
    def _marker(self) -> Path:
        return self._folder / "publishing"

    @property
    def _manifest(self) -> Path:
        return self._folder / "manifest.json"

    def _take_lock(self) -> Any:
        lock = (self._folder / "lock").open("w")
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise FileError(f"{self._output}: another job is writing it") from None
        return lock

    def _clear(self) -> None:
        self._marker.unlink(missing_ok=True)  # first: without `output` it would mean that the job is done
        self.was_published = False
        for path in self._folder.iterdir():
            if path.name != "lock":
                path.unlink()

    def _check_manifest(self, manifest: dict[str, Any]) -> None:
        if not self._manifest.exists():
            with naming(self._manifest), _Durable(self._manifest) as temporary:
                temporary.write_text(json.dumps(manifest, indent=1))
        elif changes := self._changes(manifest):
            raise FileError(
                f"{self._folder} holds an unfinished job that differs: {'; '.join(changes)}. Give the same "
                "input and options to resume it, or --no-resume to start over"
            )

    def _changes(self, manifest: dict[str, Any]) -> list[str]:
        before = stored_manifest(self._output)
        now = json.loads(json.dumps(manifest))  # as it would be read back
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        return [f"{name} was {before.get(name)!r}, is {now.get(name)!r}" for name in names]

    def _find_parts(self) -> None:
        for path in sorted(self._folder.iterdir()):
            if path.suffix == ".tmp":
                path.unlink()
            elif match := _PART.fullmatch(path.name):
                first, rows = int(match[1]), int(match[2])
                if first != self.num_rows:
                    raise FileError(f"{path}: expected rows from {self.num_rows}; start over with --no-resume")
                self._files.append((first, path))
                self.num_rows += rows
        if self._files:
            path = self._files[0][1]
            with naming(path), pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
                self._schema = reader.schema


def stored_manifest(output: Path) -> dict[str, Any]:
    """The manifest of the job that writes `output`; empty if there is none."""
    path = _folder(output) / "manifest.json"
    with naming(path, "no manifest; start over with --no-resume"):
        manifest: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return manifest


def _folder(output: Path) -> Path:
    return output.with_name(output.name + ".parts")


class _Durable:
    """Gives a temporary path; when the block ends well, syncs it to disk and renames it to the final path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + ".tmp")

    def __enter__(self) -> Path:
        return self._temporary

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            _sync(self._temporary)
            os.replace(self._temporary, self._path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _difference(before: pa.Schema, after: pa.Schema) -> str:
    for name in {*before.names, *after.names}:
        old, new = (schema.field(name).type if name in schema.names else None for schema in (before, after))
        if old != new:
            return f"column {name!r} was {old}, is {new}"
    return "other columns"
