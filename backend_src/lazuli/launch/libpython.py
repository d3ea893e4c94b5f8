"""Finds the shared library of the running Python, which the stub of the backend is linked to.

Takes a server; returns the folder that has it. Does not know where servers are found.
"""

import os
import sys
import sysconfig
from pathlib import Path

from lazuli.launch.errors import LaunchError
from lazuli.launch.folders import cache_folder
from lazuli.launch.server_binary import ServerBinary, libpython_names, python_tag


def libpython_folder(server: ServerBinary, cache: Path | None = None) -> Path | None:
    """The folder with the libpython that the server's stub needs.

    A libpython that a wheel brings along (that of Python 3.13 does) does not fit the standard library of this Python,
    to the last patch level: `import datetime` fails. So the folder then has this Python's own under that name.

    Args:
        server: The server.
        cache: Where such a folder can be made; by default the project's cache.

    Returns:
        None if the stub is unknown.

    Raises:
        LaunchError: It is nowhere, as with a Python that was built without a shared library.
    """
    names = libpython_names(server.stub) if server.stub else []
    if not names:
        return None
    bundled = [name for name in names if server.libraries and (server.libraries / name).is_file()]
    wanted = [f"libpython{python_tag()}.so.1.0"] if bundled else names
    for folder in candidate_folders():
        for name in wanted:
            if (folder / name).is_file():
                return _alias(folder / name, bundled[0], cache or cache_folder()) if bundled else folder
    raise LaunchError(
        f"the shared library {wanted[0]} of {sys.executable} is missing",
        f"apt-get install libpython{python_tag()}, or use a Python built with --enable-shared",
    )


def _alias(library: Path, name: str, cache: Path) -> Path:
    """A folder in which `library` goes by `name`."""
    folder = cache / "libpython" / python_tag()
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / name
    if not link.exists() or not link.samefile(library):
        building = folder / f".{name}.{os.getpid()}"
        building.symlink_to(library)
        building.replace(link)  # another launcher never sees it missing
    return folder


def candidate_folders() -> list[Path]:
    """Where the library of this Python may lie, most likely first."""
    libdir = sysconfig.get_config_var("LIBDIR")
    multiarch = sysconfig.get_config_var("MULTIARCH")
    # LIBDIR of a relocated Python names the place where it was built.
    folders = [Path(libdir)] if libdir else []
    folders.append(Path(sys.base_prefix) / "lib")
    if multiarch:
        folders += [Path("/usr/lib") / multiarch, Path("/usr/local/lib") / multiarch]
    return [*folders, Path("/usr/lib64"), Path("/usr/local/lib")]
