"""Turns options into the command line and the environment of tritonserver.

Takes options and the server found; returns a `Launch`. Starts nothing.
"""

import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazuli.launch.addresses import numeric_address
from lazuli.launch.backend_folder import assemble_backend
from lazuli.launch.folders import cache_folder
from lazuli.launch.gpus import gpu_environment
from lazuli.launch.libpython import libpython_folder
from lazuli.launch.options import Door, LogLevel, ServeOptions
from lazuli.launch.preflight import check_numpy
from lazuli.launch.repository import find_repositories, models_to_load, package_parent
from lazuli.launch.server_binary import ServerBinary, find_server, python_tag, stub_python
from lazuli.launch.shared_memory import new_prefix
from lazuli.tracing.setup import wants_traces

ADMIN_HEADER = "admin-key"
_CLOSED_APIS = "shared-memory,model-repository,trace,logging"
# A request of 1024 rows with its answer fits in one region as it is; Docker's 64 MB hold three regions.
SHM_REGION_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Launch:
    """One way to start the server.

    Attributes:
        server: The binary.
        repositories: The model repositories.
        arguments: The whole command line, with the binary first.
        environment: The whole environment.
        shm_prefix: How the names of its shared memory regions begin.
    """

    server: ServerBinary
    repositories: list[Path]
    arguments: list[str]
    environment: dict[str, str]
    shm_prefix: str


def build_launch(options: ServeOptions) -> Launch:
    """Find everything that the options leave open and put the command together.

    Raises:
        LaunchError: Something that the server needs is missing.
    """
    server = find_server(options.tritonserver)
    check_numpy(server, importlib.metadata.version("numpy"))
    repositories = find_repositories(options.model_repositories)
    shm_prefix = new_prefix()
    arguments = [
        str(server.path),
        *(f"--model-repository={repository}" for repository in repositories),
        *address_flags(options),
        *backend_flags(options, shm_prefix),
        *model_flags(options, repositories),
        *restriction_flags(options.admin_key),
        *log_flags(options.log_level),
        *tracing_flags({**os.environ, **options.environment}),
        f"--exit-timeout-secs={options.exit_timeout_s}",
    ]
    if server.is_wheel:
        arguments.append(f"--backend-directory={assemble_backend(server, cache_folder())}")
    environment = server_environment(options, server, os.environ)
    return Launch(server, repositories, [*arguments, *options.extra_flags], environment, shm_prefix)


def address_flags(options: ServeOptions) -> list[str]:
    """Where the three services listen."""
    host = numeric_address(options.host)  # Triton's HTTP takes a name for 255.255.255.255
    return [
        f"--http-address={host}",
        f"--http-port={options.http_port}",
        f"--grpc-address={host}",
        f"--grpc-port={options.grpc_port}",
        f"--metrics-address={host}",
        f"--metrics-port={options.metrics_port}",
    ]


def backend_flags(options: ServeOptions, shm_prefix: str) -> list[str]:
    """Settings of the Python backend: shared memory, and patience while a checkpoint loads."""
    settings = {
        "shm-region-prefix-name": shm_prefix,
        "shm-default-byte-size": SHM_REGION_BYTES,
        "shm-growth-byte-size": SHM_REGION_BYTES,
        "stub-timeout-seconds": max(30, int(options.start_timeout_s)),
    }
    return [f"--backend-config=python,{name}={value}" for name, value in settings.items()]


def model_flags(options: ServeOptions, repositories: Sequence[Path]) -> list[str]:
    """Which models are loaded, and that their configurations are complete.

    Completing them would start each Python model once more before it is loaded: twice the time to start.
    """
    flags = [] if options.auto_complete_config else ["--disable-auto-complete-config"]
    flags.append("--model-control-mode=explicit")
    # To be completed, a model needs no file that tells it from other folders.
    everything = options.auto_complete_config and options.door is Door.BOTH and not options.models
    models = ["*"] if everything else models_to_load(repositories, options.door, options.models)
    return flags + [f"--load-model={model}" for model in models]


def restriction_flags(admin_key: str) -> list[str]:
    """Close the APIs that change the server to everyone without the key."""
    return [
        f"--http-restricted-api={_CLOSED_APIS}:{ADMIN_HEADER}={admin_key}",
        f"--grpc-restricted-protocol={_CLOSED_APIS}:{ADMIN_HEADER}={admin_key}",
    ]


def log_flags(level: LogLevel) -> list[str]:
    """The log file has info and above; only verbose asks the server for more."""
    return ["--log-verbose=1"] if level is LogLevel.VERBOSE else []


def tracing_flags(environment: Mapping[str, str]) -> list[str]:
    """Make parameters of the headers that say of which trace a call is, if models make spans."""
    if not wants_traces(environment):
        return []
    return [f"--{protocol}-header-forward-pattern=(?i)^trace(parent|state)$" for protocol in ("http", "grpc")]


def server_environment(options: ServeOptions, server: ServerBinary, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the server and its stubs find libraries and packages."""
    environment = dict(inherited)
    if server.is_wheel or (server.stub and stub_python(server.stub) == python_tag()):
        # The stub takes its site-packages from the first python3 on PATH.
        _prepend(environment, "PATH", Path(sys.executable).parent)
    if server.is_wheel:
        _prepend(environment, "LD_LIBRARY_PATH", server.libraries)
        # First: it may stand in for one among the server's own libraries.
        _prepend(environment, "LD_LIBRARY_PATH", libpython_folder(server))
    if package_parent() != Path(sysconfig.get_path("purelib")).resolve():
        _prepend(environment, "PYTHONPATH", package_parent())
    environment.pop("PYTHONHOME", None)
    environment |= options.model_environment() | dict(options.environment)
    return environment | gpu_environment(environment.get("LAZULI_DEVICE"), environment)


def _prepend(environment: dict[str, str], variable: str, folder: Path | None) -> None:
    if folder is not None:
        rest = environment.get(variable)
        environment[variable] = f"{folder}{os.pathsep}{rest}" if rest else str(folder)
