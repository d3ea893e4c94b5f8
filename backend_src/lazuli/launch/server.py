"""One server from its start to its end: the process, its log, and the wait until every model answers.

Takes options and a `Launch`; raises `LaunchError` with the reason found in the log. Restarts nothing.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from lazuli.launch.addresses import Addresses
from lazuli.launch.command import Launch
from lazuli.launch.errors import CrashError, LaunchError
from lazuli.launch.idleness import Idleness
from lazuli.launch.options import ServeOptions
from lazuli.launch.probe import ProbeError, Prober
from lazuli.launch.probe_model import ProbeModel
from lazuli.launch.process import ServerProcess
from lazuli.launch.rest import RestError
from lazuli.launch.server_log import LogFollower, all_were_answered, failure_reason
from lazuli.launch.stop_request import StopRequest
from lazuli.launch.tls import GrpcTls

_POLL_S = 0.05
_IDLE_START_S = 30.0
# How Triton 24.10 ends where a client keeps an idle connection of HTTP open until the exit timeout.
_TIMED_OUT = 1


class Server:
    """A started server; use as a context manager, so that nothing of it is left behind."""

    def __init__(
        self,
        options: ServeOptions,
        launch: Launch,
        log_path: Path,
        show: Callable[[str], None],
        stop: StopRequest,
    ) -> None:
        keep_previous(log_path)
        self.addresses = Addresses.of(options)
        self.prober = Prober(self.addresses, options.admin_key, GrpcTls.from_flags(options.extra_flags))
        self.log_path = log_path
        self.version = ""
        self._options = options
        self._stop = stop
        self.process = ServerProcess(launch, log_path)
        self._log = LogFollower(log_path, options.log_level, show)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_serving(self) -> list[ProbeModel]:
        """Wait until every model has answered a real inference.

        Returns:
            The served models; empty if a stop was asked for meanwhile.

        Raises:
            LaunchError: The server ended, a model failed, or it takes too long.
        """
        deadline = time.monotonic() + self._options.start_timeout_s
        idleness = Idleness(self.process.used, _IDLE_START_S)
        while not self.prober.is_ready():
            self._check_alive()
            self._check_time(deadline)
            self._check_idleness(idleness)
            if self._stop.wait(_POLL_S):
                return []
        self.process.keep_private()
        try:
            self.version = self.prober.server_version()
            models = self.prober.served_models()
            for model in models:
                self._probe(model, deadline)
        except (RestError, OSError) as error:
            self._check_alive()
            raise LaunchError(f"the server does not answer as it should: {error}", self._see_log()) from error
        if not models:
            raise LaunchError("the server runs but has no model loaded", self._see_log())
        return [] if self._stop.asked() else models

    def close(self, *, is_faulty: bool = False, is_silent: bool = False) -> bool:
        """Stop it, with what is left of it.

        Args:
            is_faulty: Whether it was found to be; as of `ServerProcess.stop`.
            is_silent: Whether it answers nothing; likewise.

        Returns:
            Whether it ended in good order.
        """
        ended = self.process.stop(
            self._options.exit_timeout_s, self._stop.asked_twice, is_faulty=is_faulty, is_silent=is_silent
        )
        self._log.close()
        return ended or (self.process.exit_code() == _TIMED_OUT and all_were_answered(self.log_path))

    def exit_text(self) -> str:
        """How it ended, with the reason its log gives."""
        code = self.process.exit_code()
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}: {failure_reason(self.log_path)}"

    def _probe(self, model: ProbeModel, deadline: float) -> None:
        try:
            self.prober.probe_everywhere(model, max(1.0, deadline - time.monotonic()))
        except ProbeError as error:
            self._check_alive()
            raise LaunchError(f"a first inference failed: {error}", self._see_log()) from error

    def _check_alive(self) -> None:
        if (code := self.process.exit_code()) is not None:
            kind = CrashError if code < 0 else LaunchError
            raise kind(f"the server {self.exit_text()}", self._see_log())

    def _check_time(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise LaunchError(
                f"the server was not ready within {self._options.start_timeout_s:g} s",
                f"{self._see_log()}, or allow more with --start-timeout",
            )

    def _check_idleness(self, idleness: Idleness) -> None:
        if idleness.is_too_long():
            raise CrashError(f"the server has done nothing for {idleness.longest_s:g} s of its start", self._see_log())

    def _see_log(self) -> str:
        return f"see {self.log_path}"


def keep_previous(log_path: Path) -> None:
    """Keep one older log: after a restart it says why."""
    if log_path.exists():
        os.replace(log_path, log_path.with_suffix(".previous.log"))
