"""Compiles the C++ of this folder for this machine, once, and loads it.

Takes the folder where compiled libraries are kept; returns the library. Knows nothing of models.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import time
from functools import cache
from importlib.resources import files
from pathlib import Path

_log = logging.getLogger(__name__)
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-pthread")
_SOURCES = ("bert.cpp", "crew.h", "memory.h", "product.h", "vectors.h")
_TIMEOUT_S = 300


class NativeError(Exception):
    """There is no library; the message says why."""


@cache
def load_library(folder: Path) -> ctypes.CDLL:
    """Load the library, compiled unless it is in `folder`; one that cannot be written to is done without.

    Raises:
        NativeError: If there is no compiler, or it fails.
    """
    compiler = _find_compiler()
    name = f"bert-{_fingerprint(compiler)}.so"
    try:
        if not (folder / name).is_file():
            _compile_once(compiler, folder, name)
        return ctypes.CDLL(str(folder / name))
    except OSError as error:
        _log.warning("%s: %s; compiled anew at each start", folder, error)
    with tempfile.TemporaryDirectory() as own:
        try:
            _compile(compiler, Path(own) / name)
            return ctypes.CDLL(str(Path(own) / name))  # stays loaded when its file is gone
        except OSError as error:
            raise NativeError(f"{own}: {error}") from error


def _find_compiler() -> str:
    wanted = (os.environ["CXX"],) if os.environ.get("CXX") else _COMPILERS
    found = next((path for name in wanted if (path := shutil.which(name))), None)
    if found is None:
        raise NativeError(f"no C++ compiler is on PATH ({', '.join(wanted)})")
    return found


def _fingerprint(compiler: str) -> str:
    """Of all that the result depends on; the instructions that this machine has are among that."""
    version = _run([compiler, "--version"])
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0] if os.name == "posix" else ""
    kept = [line for line in cpu.splitlines() if line.startswith(("flags", "Features", "model", "CPU"))]
    content = [(files("lazuli.native") / source).read_text(encoding="utf-8") for source in _SOURCES]
    parts = [compiler, version, platform.machine(), *kept, *_FLAGS, *content]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _compile_once(compiler: str, folder: Path, name: str) -> None:
    """Compile; of several processes that start together, one does and the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / name).is_file():
            return
        with tempfile.TemporaryDirectory(dir=folder) as own:
            _compile(compiler, Path(own) / name)
            (Path(own) / name).rename(folder / name)


def _compile(compiler: str, target: Path) -> None:
    begin = time.monotonic()
    source = str(files("lazuli.native") / "bert.cpp")
    _run([compiler, *_FLAGS, "-o", str(target), source])
    _log.info("compiled %s with %s in %.1f s", source, compiler, time.monotonic() - begin)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except subprocess.CalledProcessError as error:
        raise NativeError(f"{command[0]} failed: {error.stderr.strip()[-500:]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeError(f"{command[0]} failed: {error}") from error
    return done.stdout
