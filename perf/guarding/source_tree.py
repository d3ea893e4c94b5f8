"""The source of the project, as it lies here or as a commit has it, to run one beside the other.

Takes the name of a commit, yields a folder. It is unpacked and not checked out, so that neither the repository nor its
list of worktrees changes, whatever becomes of the process.
"""

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

WORKING_TREE = Path(__file__).parents[2]
# What of a tree is run.
_PACKAGES = ("backend_src", "client")


@contextmanager
def commit_tree(commit: str) -> Iterator[Path]:
    """The packages of a commit, for the length of the block.

    Raises:
        LookupError: If there is no such commit, or no repository.
    """
    command = ["git", "archive", commit, "--", *_PACKAGES]
    with tempfile.TemporaryDirectory(prefix="lazuli-tree-") as folder, tempfile.TemporaryFile() as archive:
        try:
            done = subprocess.run(command, cwd=WORKING_TREE, stdout=archive, stderr=subprocess.PIPE)
        except FileNotFoundError:
            raise LookupError("git is not installed") from None
        if done.returncode != 0:
            raise LookupError(f"no source of {commit}: {done.stderr.decode(errors='replace').strip()}")
        archive.seek(0)
        with tarfile.open(fileobj=archive) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def environment_of(tree: Path) -> Mapping[str, str]:
    """The environment in which Python imports the packages of a tree, and the benchmarks of this one."""
    places = [*(str(tree / package) for package in _PACKAGES), str(Path(__file__).parents[1])]
    # Sets of strings are in the same order in all processes, and nothing is written into the tree.
    return os.environ | {"PYTHONPATH": os.pathsep.join(places), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
