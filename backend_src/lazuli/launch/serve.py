"""`lazuli serve`: starts the server, says how to use it, keeps it alive and stops it.

Takes options; returns the exit code. Knows the order of things and leaves each to its own module.
"""

import sys
import time
from collections.abc import Callable

from lazuli.launch.command import Launch, build_launch
from lazuli.launch.errors import LaunchError
from lazuli.launch.examples import examples
from lazuli.launch.folders import cache_folder, state_folder
from lazuli.launch.options import ServeOptions
from lazuli.launch.preflight import check_machine
from lazuli.launch.probe import ProbeModel, outer_models
from lazuli.launch.rerank_model import with_rerank_model
from lazuli.launch.server import Server
from lazuli.launch.shared_memory import remove_stale_regions
from lazuli.launch.stop_request import StopRequest
from lazuli.launch.watch import Watch

_RESTART_WINDOW_S = 600.0
_RESTART_PAUSE_S = 1.0
_WATCH_S = 0.5


def serve(options: ServeOptions) -> int:
    """Serve until a signal or until the server cannot be kept alive.

    Returns:
        0 after a clean stop; 1 if the server had to be killed.

    Raises:
        LaunchError: It cannot be started or kept running.
    """
    options = with_rerank_model(options, cache_folder() / "served" / str(options.http_port), say)
    check_machine(options)
    remove_stale_regions()
    launch = build_launch(options)
    places = ", ".join(map(str, launch.repositories))
    say(f"starting {launch.server.path} ({launch.server.version}) on {places}")
    with StopRequest().from_signals() as stop:
        return Supervisor(options, launch, stop, say).run()


def say(text: str) -> None:
    """Print for the user, at once even into a pipe."""
    print(text, flush=True)


class Supervisor:
    """Starts the server again when it fails, up to a limit."""

    def __init__(self, options: ServeOptions, launch: Launch, stop: StopRequest, show: Callable[[str], None]) -> None:
        self._options = options
        self._launch = launch
        self._stop = stop
        self._show = show
        self._restarts_s: list[float] = []
        self._served_once = False

    def run(self) -> int:
        """Run until stopped.

        Returns:
            The exit code.

        Raises:
            LaunchError: The first start failed, or there were too many restarts.
        """
        while True:
            try:
                fault, clean = self._run_once()
            except LaunchError as error:
                if not self._served_once:
                    raise
                fault, clean = str(error), True
            if self._stop.asked():
                killed = "stopped; the server crashed or had to be killed, and requests may have been lost"
                self._show("stopped" if clean else killed)
                return 0 if clean else 1
            self._note_restart(fault)
            self._stop.wait(_RESTART_PAUSE_S)

    def _run_once(self) -> tuple[str, bool]:
        """One server from start to end: why it ended, and whether it could be stopped in good order."""
        log_path = state_folder() / f"server-{self._options.http_port}.log"
        started_s = time.monotonic()
        with Server(self._options, self._launch, log_path, self._show, self._stop) as server:
            models = server.wait_until_serving()
            fault = self._keep(server, models, started_s) if models else ""
            if self._stop.asked():
                self._show("stopping (again to kill) ...")
            return fault, server.close()

    def _keep(self, server: Server, models: list[ProbeModel], started_s: float) -> str:
        """Announce the server and watch it until it fails or a stop is asked for."""
        self._served_once = True
        self._show(banner(server, models, time.monotonic() - started_s))
        watched = outer_models(models) if self._options.probe_interval_s > 0 else []
        watch = Watch(
            server.process,
            server.prober,
            watched,
            self._options.probe_interval_s or 1.0,
            self._options.hang_timeout_s,
        )
        try:
            while not self._stop.wait(_WATCH_S):
                if server.process.exit_code() is not None:
                    return f"the server {server.exit_text()}"
                if fault := watch.fault():
                    return fault
            return ""
        finally:
            watch.close()

    def _note_restart(self, fault: str) -> None:
        now_s = time.monotonic()
        self._restarts_s = [at_s for at_s in self._restarts_s if now_s - at_s < _RESTART_WINDOW_S]
        limit = self._options.max_restarts
        if len(self._restarts_s) >= limit:
            raise LaunchError(f"gave up after {limit} restarts within {_RESTART_WINDOW_S / 60:g} minutes: {fault}")
        self._restarts_s.append(now_s)
        self._show(f"restarting ({len(self._restarts_s)} of {limit}): {fault}")


def banner(server: Server, models: list[ProbeModel], seconds: float) -> str:
    """What the user reads once the server serves."""
    names = sorted(model.name for model in models)
    lines = [
        f"ready in {seconds:.1f} s: Triton {server.version} serves {', '.join(names)}",
        f"  HTTP     http://{server.addresses.http}",
        f"  gRPC     {server.addresses.grpc}",
        f"  metrics  http://{server.addresses.metrics}/metrics",
        f"  log      {server.log_path}",
    ]
    pasted = examples(server.addresses, names)
    if pasted:
        lines += ["", "Try it:", "", pasted]
    return "\n".join([*lines, "", "Ctrl-C stops it."])


def complain(error: LaunchError) -> None:
    """Print an error with its remedy."""
    remedy = f"\nto mend it: {error.remedy}" if error.remedy else ""
    print(f"lazuli: {error}{remedy}", file=sys.stderr, flush=True)
