"""Finds a `tritonserver` binary on this machine.

Takes an explicit path or nothing; returns the binary and what is known of its backend. Starts nothing and
does not know about model repositories.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from lazuli.launch.errors import LaunchError

CONTAINER_BINARY = Path("/opt/tritonserver/bin/tritonserver")
WHEEL = "nvidia-pytriton"
STUB_NAME = "triton_python_backend_stub"
INSTALL_REMEDY = f"{sys.executable} -m pip install 'lazuli[server]'  (in a checkout: make serve)"
_LIBPYTHON = re.compile(rb"libpython3[\w.-]*\.so[\d.]*")
_PYTHON_VERSION = re.compile(r"libpython3(?:-\w+)?\.(\d+)\.so")


@dataclass(frozen=True)
class ServerBinary:
    """A server and the stub of its Python backend.

    Attributes:
        path: The executable.
        stub: The stub that will run the models; None where it was not found.
        backend: The folder with `libtriton_python.so` that has to be assembled with the stub; None for a
            complete installation, which knows its own backends.
        libraries: The folder of shared libraries that belongs to the wheel; None otherwise.
        version: What to call it.
    """

    path: Path
    stub: Path | None
    backend: Path | None
    libraries: Path | None
    version: str

    @property
    def is_wheel(self) -> bool:
        """Whether this is the binary of the wheel, which needs its surroundings made."""
        return self.backend is not None


def python_tag() -> str:
    """The version of the running Python as stubs are named, such as "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def libpython_names(stub: Path) -> list[str]:
    """The file names of libpython in a stub; one that was repaired for a wheel has two."""
    return sorted({name.decode() for name in _LIBPYTHON.findall(stub.read_bytes())})


def stub_python(stub: Path) -> str | None:
    """The Python version that a stub runs, such as "3.12"."""
    for name in libpython_names(stub):
        if match := _PYTHON_VERSION.match(name):
            return f"3.{match.group(1)}"
    return None


def find_server(explicit: Path | None = None) -> ServerBinary:
    """Choose the server: the explicit one, else one on PATH, the container's, or the wheel's.

    A server that was not asked for and whose stub runs another Python than this one is passed over: it could
    not import this environment's packages.

    Raises:
        LaunchError: There is none, or the explicit one cannot be used.
    """
    if explicit is not None:
        return _explicit_server(explicit)
    for path in _installed_candidates():
        server = installed_server(path)
        if server.stub is None or stub_python(server.stub) in (None, python_tag()):
            return server
    server_of_wheel = wheel_server()
    if server_of_wheel is None:
        raise LaunchError("no tritonserver on PATH, in /opt/tritonserver or in this environment", INSTALL_REMEDY)
    return server_of_wheel


def installed_server(path: Path) -> ServerBinary:
    """Describe a complete installation, laid out like the container's: bin/, backends/, TRITON_VERSION."""
    root = path.resolve().parent.parent
    stub = root / "backends" / "python" / STUB_NAME
    version_file = root / "TRITON_VERSION"
    version = version_file.read_text().strip() if version_file.is_file() else "of unknown version"
    return ServerBinary(path, stub if stub.is_file() else None, None, None, version)


def wheel_server() -> ServerBinary | None:
    """Describe the binary of the wheel in this environment, if it is installed.

    Raises:
        LaunchError: The wheel has no stub for the running Python.
    """
    # find_spec of a top-level package does not import it.
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    root = package / "tritonserver"
    stub = root / "python_backend_stubs" / python_tag() / STUB_NAME
    if not stub.is_file():
        have = ", ".join(sorted(path.name for path in (root / "python_backend_stubs").glob("3.*"))) or "none"
        raise LaunchError(f"{WHEEL} has no stub for Python {python_tag()} (it has {have})", "use Python 3.11 to 3.13")
    libraries = package.parent / "nvidia_pytriton.libs"
    version = f"{WHEEL} {importlib.metadata.version(WHEEL)}"
    return ServerBinary(root / "bin" / "tritonserver", stub, root / "backends" / "python", libraries, version)


def _explicit_server(path: Path) -> ServerBinary:
    if not path.is_file() or not os.access(path, os.X_OK):
        raise LaunchError(f"--tritonserver {path} is not an executable file")
    wheel = wheel_server()
    if wheel is not None and path.resolve() == wheel.path.resolve():
        return wheel
    server = installed_server(path)
    version = stub_python(server.stub) if server.stub else None
    if version not in (None, python_tag()):
        raise LaunchError(
            f"the backend of {path} runs Python {version}, but this environment is Python {python_tag()}",
            f"run lazuli with python{version}, or leave --tritonserver out",
        )
    return server


def _installed_candidates() -> list[Path]:
    on_path = shutil.which("tritonserver")
    candidates = [Path(on_path)] if on_path else []
    if os.access(CONTAINER_BINARY, os.X_OK):
        candidates.append(CONTAINER_BINARY)
    return candidates
