"""Two pages for whoever decides about traffic and restarts: `/live` and `/ready`.

Takes a function that looks at the state of the server; answers over HTTP. Triton's own `/v2/health/ready` stays at 200
when the process of a model has died.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class State:
    """How the server is doing.

    Attributes:
        phase: starting, serving, restarting or stopping.
        restarts: So far.
        faults: For each model that does not answer, why.
    """

    phase: str
    restarts: int = 0
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether every model can answer."""
        return self.phase == "serving" and not self.faults


class HealthServer:
    """Answers until it is closed; use as a context manager."""

    def __init__(self, host: str, port: int, look: Callable[[], State]) -> None:
        """Listen.

        Args:
            host: Address to listen on.
            port: 0 takes a free one.
            look: Called for each request, from another thread.
        """

        class Handler(_Handler):
            look_at_state = staticmethod(look)

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="lazuli-health", daemon=True)
        self._thread.start()

    def __enter__(self) -> "HealthServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    look_at_state: Callable[[], State]
    # Who connects and says nothing must not hold a thread for ever.
    timeout = 5.0

    def do_GET(self) -> None:
        state = self.look_at_state()
        if self.path == "/live":
            self._answer(200, {"live": True})
        elif self.path == "/ready":
            self._answer(200 if state.is_ready else 503, {"ready": state.is_ready, **asdict(state)})
        else:
            self._answer(404, {"error": "there are /live and /ready"})

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: probes come every few seconds."""
