"""A real server for the length of a `with` block: for tests and benchmarks.

Takes options; yields addresses. Picks free ports and does not restart a server that fails.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lazuli.launch.addresses import Addresses
from lazuli.launch.command import build_launch
from lazuli.launch.options import ServeOptions
from lazuli.launch.preflight import check_machine, free_ports
from lazuli.launch.process import ServerProcess
from lazuli.launch.repository import BUILT_IN
from lazuli.launch.rerank_model import with_rerank_model
from lazuli.launch.server import Server
from lazuli.launch.stop_request import StopRequest


@dataclass(frozen=True)
class RunningServer:
    """A server on which every model has answered.

    Attributes:
        http, grpc, metrics: host:port.
        models: Names of the served models.
        admin_key: Opens the closed APIs (HTTP header `admin-key`, gRPC `triton-grpc-protocol-admin-key`).
        log_path: The server's log; gone with the block unless a path was given.
        process: To look at the processes, or to stop the server early.
    """

    http: str
    grpc: str
    metrics: str
    models: tuple[str, ...]
    admin_key: str
    log_path: Path
    process: ServerProcess


@contextmanager
def running_server(
    options: ServeOptions | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    log_path: Path | None = None,
) -> Iterator[RunningServer]:
    """Start a server on free ports and stop it at the end of the block.

    Must be entered on the main thread, as `ServerProcess` says.

    Args:
        options: As for `lazuli serve`; the ports are replaced, and without a repository the user's models are left out.
        environment: Added to the server's environment.
        log_path: Where to keep the log.

    Raises:
        LaunchError: It did not start; the message has the reason from the log.
    """
    options = _on_free_ports(options or ServeOptions(), environment or {})
    with tempfile.TemporaryDirectory(prefix="lazuli-") as folder:
        options = with_rerank_model(options, Path(folder) / "models", _show_nothing)
        check_machine(options)
        path = log_path or Path(folder) / "server.log"
        with Server(options, build_launch(options), path, _show_nothing, StopRequest()) as server:
            models = tuple(model.name for model in server.wait_until_serving())
            yield _running(server.addresses, models, options.admin_key, server)


def _running(addresses: Addresses, models: tuple[str, ...], admin_key: str, server: Server) -> RunningServer:
    return RunningServer(
        addresses.http, addresses.grpc, addresses.metrics, models, admin_key, server.log_path, server.process
    )


def _on_free_ports(options: ServeOptions, environment: Mapping[str, str]) -> ServeOptions:
    http_port, grpc_port, metrics_port = free_ports(3)
    return replace(
        options,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        model_repositories=options.model_repositories or (BUILT_IN,),
        environment={**options.environment, **environment},
    )


def _show_nothing(line: str) -> None:
    """The log file has it."""
