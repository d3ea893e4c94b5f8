"""Keeps a server alive: starts it, watches it, and starts it again with back-off when it fails.

Takes options and a `Launch`; returns the exit code. Leaves finding faults to the watch, and pauses to `Restarts`.
"""

import time
from collections.abc import Callable

from lazuli.launch.command import Launch
from lazuli.launch.errors import CrashError, LaunchError
from lazuli.launch.event_line import event_line
from lazuli.launch.examples import examples
from lazuli.launch.folders import state_folder
from lazuli.launch.health_server import State
from lazuli.launch.options import ServeOptions
from lazuli.launch.probe_model import ProbeModel
from lazuli.launch.restarts import Restarts
from lazuli.launch.server import Server
from lazuli.launch.stop_request import StopRequest
from lazuli.launch.watch import Watch

_WATCH_S = 0.5
# Triton 24.10 to 25.02 at least may crash while it loads models on a machine that is very busy (server#8882). So often
# a first start is tried again.
_START_CRASHES = 2


class Supervisor:
    """Starts the server again when it fails, up to a limit."""

    def __init__(
        self,
        options: ServeOptions,
        launch: Launch,
        stop: StopRequest,
        show: Callable[[str], None],
        restarts: Restarts | None = None,
    ) -> None:
        self._options = options
        self._launch = launch
        self._stop = stop
        self._show = show
        self._restarts = restarts or Restarts(options.max_restarts)
        self._failed_at_s: float | None = None
        self._served_once = False
        self._server_is_silent = False
        self._phase = "starting"
        self._watch: Watch | None = None

    def state(self) -> State:
        """How the server is doing; may be asked by other threads."""
        watch = self._watch
        return State(self._phase, self._restarts.total, watch.complaints() if watch else {})

    def run(self) -> int:
        """Run until stopped.

        Returns:
            The exit code.

        Raises:
            LaunchError: The first start failed, three times if it was by a crash, or there were too many restarts.
        """
        while True:
            try:
                fault, clean = self._run_once()
            except LaunchError as error:
                if not self._served_once and not self._may_start_again(error):
                    raise
                fault, clean = str(error), True
            if self._stop.asked():
                killed = "stopped; the server crashed or had to be killed, and requests may have been lost"
                self._show("stopped" if clean else killed)
                return 0 if clean else 1
            if self._stop.wait(self._note_fault(fault)):
                self._show("stopped")
                return 0

    def _run_once(self) -> tuple[str, bool]:
        """One server from start to end: why it ended, and whether it could be stopped in good order."""
        log_path = state_folder() / f"server-{self._options.http_port}.log"
        started_s = time.monotonic()
        self._server_is_silent = False
        with Server(self._options, self._launch, log_path, self._show, self._stop) as server:
            models = server.wait_until_serving()
            fault = self._keep(server, models, started_s) if models else ""
            if self._stop.asked():
                self._show("stopping (again to kill) ...")
            return fault, server.close(is_faulty=bool(fault), is_silent=self._server_is_silent)

    def _keep(self, server: Server, models: list[ProbeModel], started_s: float) -> str:
        """Announce the server and watch it until it fails or a stop is asked for."""
        options = self._options
        self._announce(server, models, time.monotonic() - started_s)
        self._watch = watch = Watch(
            server.process,
            server.prober,
            models,
            options.probe_interval_s,
            options.hang_timeout_s,
            options.probe_timeout_s,
        )
        self._phase = "serving"
        try:
            while not self._stop.wait(_WATCH_S):
                server.process.keep_private()  # also of models that were loaded since
                if server.process.exit_code() is not None:
                    return f"the server {server.exit_text()}"
                if fault := watch.fault():
                    return fault
            return ""
        finally:
            self._phase = "stopping" if self._stop.asked() else "restarting"
            since_s = watch.failing_since_s()
            self._failed_at_s = time.monotonic() if since_s is None else since_s
            self._watch = None
            self._server_is_silent = watch.server_is_silent()
            watch.close()

    def _may_start_again(self, error: LaunchError) -> bool:
        return isinstance(error, CrashError) and self._restarts.recent < _START_CRASHES

    def _announce(self, server: Server, models: list[ProbeModel], seconds: float) -> None:
        if not self._served_once:
            self._show(banner(server, models, seconds))
        elif self._failed_at_s is not None:
            down_s = time.monotonic() - self._failed_at_s
            self._show(event_line("serving again", restarts=self._restarts.total, down_s=down_s, start_s=seconds))
        self._served_once = True
        self._failed_at_s = None

    def _note_fault(self, fault: str) -> float:
        pause_s = self._restarts.next_pause_s(fault)
        recent, limit = self._restarts.recent, self._restarts.limit
        self._show(event_line("restart", reason=fault, number=recent, limit=limit, pause_s=pause_s))
        return pause_s


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
