"""`lazuli serve`: starts the server, says how to use it, keeps it alive and stops it.

Takes options; returns the exit code. Knows the order of things and leaves each to its own module.
"""

import sys
from contextlib import nullcontext

from lazuli.launch.addresses import numeric_address
from lazuli.launch.command import build_launch
from lazuli.launch.errors import LaunchError
from lazuli.launch.folders import cache_folder
from lazuli.launch.health_server import HealthServer
from lazuli.launch.options import ServeOptions
from lazuli.launch.preflight import check_machine
from lazuli.launch.rerank_model import add_apart, with_rerank_model
from lazuli.launch.shared_memory import remove_stale_regions
from lazuli.launch.stop_request import StopRequest
from lazuli.launch.supervisor import Supervisor


def serve(options: ServeOptions) -> int:
    """Serve until a signal or until the server cannot be kept alive.

    Returns:
        0 after a clean stop; 1 if the server had to be killed.

    Raises:
        LaunchError: It cannot be started or kept running.
    """
    options = with_rerank_model(options, cache_folder() / "served" / str(options.http_port), say, add_apart)
    check_machine(options)
    remove_stale_regions()
    launch = build_launch(options)
    places = ", ".join(map(str, launch.repositories))
    say(f"starting {launch.server.path} ({launch.server.version}) on {places}")
    with StopRequest().from_signals() as stop:
        supervisor = Supervisor(options, launch, stop, say)
        with _health_server(options, supervisor):
            return supervisor.run()


def say(text: str) -> None:
    """Print for the user, at once even into a pipe."""
    print(text, flush=True)


def complain(error: LaunchError) -> None:
    """Print an error with its remedy."""
    remedy = f"\nto mend it: {error.remedy}" if error.remedy else ""
    print(f"lazuli: {error}{remedy}", file=sys.stderr, flush=True)


def _health_server(options: ServeOptions, supervisor: Supervisor) -> HealthServer | nullcontext[None]:
    if options.health_port is None:
        return nullcontext()
    return HealthServer(numeric_address(options.host), options.health_port, supervisor.state)
