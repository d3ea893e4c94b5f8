"""Files of the command line: their names in errors, and whether an input is still the same.

Takes paths, returns or raises; does not know what is in the files.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from lazuli_client.errors import FileError, LazuliError

STDIN = Path("-")


@contextmanager
def naming(path: Path, what: str = "") -> Iterator[None]:
    """Turn errors of reading or writing `path` into `FileError`, which names it.

    The errors of writing to a full disk, and those of pyarrow and numpy about a broken file, do not.

    Args:
        path: The file.
        what: What it is then, such as "not Parquet".
    """
    try:
        yield
    except LazuliError:  # some are a ValueError or an OSError too
        raise
    except (OSError, ValueError, EOFError, pa.ArrowException) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        raise FileError(": ".join(filter(None, (str(path), what, reason)))) from error


def fingerprint(path: Path, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """What tells a changed input: its place, size, time of change and a hash of its content.

    Args:
        path: The input.
        known: An earlier fingerprint. Returned as it is if the file is the same, which a time of change that
            differs alone does not deny: then the hash decides.
    """
    if path == STDIN:
        return {"path": "-"}
    stat = path.stat()
    now = {"path": str(path.resolve()), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    if known is not None and now == {name: known.get(name) for name in now}:
        return known
    # The whole file: a hash of samples would miss an edit and mix vectors of two inputs. Reading a file once
    # takes a small part of the time of embedding it.
    with path.open("rb") as file:
        now["blake2b"] = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    is_same = known is not None and {**known, "mtime_ns": 0} == {**now, "mtime_ns": 0}
    return known if known is not None and is_same else now
