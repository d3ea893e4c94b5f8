"""Finds a perf_analyzer that runs on this machine, or fetches one.

Returns its path and the environment that it needs. The wheels of `perf-analyzer` need glibc 2.38; on older systems pip
installs an empty 0.1.0 without a word. There the binary inside the wheel of tritonclient 2.47.0 does it, with two
libraries of the server's wheel under the names that it asks for.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

_OLD_WHEEL = "tritonclient==2.47.0"
_LIBRARIES = {"libb64.so.0d": "libb64-*.so.0d", "libcudart.so.12": "libcudart-*.so.12*"}


def find_perf_analyzer() -> tuple[Path, dict[str, str]]:
    """The binary and its environment.

    Raises:
        FileNotFoundError: If there is none and none can be made.
    """
    beside = Path(sys.executable).parent / "perf_analyzer"
    on_path = shutil.which("perf_analyzer")
    if beside.is_file() or on_path:
        return beside if beside.is_file() else Path(str(on_path)), dict(os.environ)
    if _glibc() >= (2, 38):
        _pip("install", "perf-analyzer>=2.58")
        return beside, dict(os.environ)
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lazuli" / "perf_analyzer"
    if not (folder / "perf_analyzer").is_file():
        _unpack(folder)
    libraries = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    return folder / "perf_analyzer", os.environ | {"LD_LIBRARY_PATH": libraries}


def _unpack(folder: Path) -> None:
    spec = find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("perf_analyzer for an old glibc takes two libraries from the wheel nvidia-pytriton")
    libraries = Path(spec.origin).parents[1] / "nvidia_pytriton.libs"
    folder.mkdir(parents=True, exist_ok=True)
    for name, pattern in _LIBRARIES.items():
        shutil.copy(next(libraries.glob(pattern)), folder / name)
    with tempfile.TemporaryDirectory() as downloads:
        _pip("download", "--no-deps", "--dest", downloads, _OLD_WHEEL)
        with zipfile.ZipFile(next(Path(downloads).glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith("/bin/perf_analyzer"))
            target = folder / "perf_analyzer"
            target.write_bytes(wheel.read(member))
    target.chmod(0o755)


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", *arguments], check=True)


def _glibc() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.libc_ver()[1].split("."))
