"""The guard itself: an ASGI application around all others.

Takes every HTTP request; refuses it, or passes it on with a `Call` in `scope["state"]`, and keeps the books.
"""

import asyncio
import contextlib
import logging
import math
import os
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lazuli_client.gateway.apis.shapes import error_response
from lazuli_client.gateway.errors import ApiError, fault, not_decoded, overloaded, stopping
from lazuli_client.gateway.guard import rate
from lazuli_client.gateway.guard.access_log import log_request
from lazuli_client.gateway.guard.arrival import Arrival, Places
from lazuli_client.gateway.guard.headers import read_call, set_deadline
from lazuli_client.gateway.guard.keys import Keys
from lazuli_client.gateway.metrics import Metrics
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.settings import GatewaySettings

# Without a key, and however many requests are under way.
OPEN_PATHS = frozenset({"/", "/health", "/docs", "/openapi.json", "/page/index.js", "/page/docs.js", "/page/style.css"})
_OTHER = "other"
# For the answers to requests that were given up, once the time to drain is over.
_LAST_ANSWERS_S = 2.0
_log = logging.getLogger(__name__)


class Guard:
    """Keys, limits, ids, deadlines, log and figures."""

    def __init__(
        self, app: ASGIApp, settings: GatewaySettings, keys: Keys, metrics: Metrics, paths: frozenset[str]
    ) -> None:
        """Stand before an application.

        Args:
            app: What answers.
            settings: Limits.
            keys: Who may come in.
            metrics: The books.
            paths: Paths that are counted and logged by name.
        """
        self._app = app
        self._settings = settings
        self._keys = keys
        self._metrics = metrics
        self._paths = paths
        self._rate = rate.Rate(settings.requests_per_s, os.environ.get(rate.FILE))
        self._places = Places(-(-settings.max_requests // settings.workers), settings.max_body_bytes)
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, now = perf_counter(), asyncio.get_running_loop().time()
        headers = dict(scope["headers"])
        call = read_call(headers, now, self._settings.timeout_s)
        scope.setdefault("state", {})["call"] = call
        path, status, key, has_begun = scope["path"], 500, None, False

        async def send_marked(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                message["headers"] = [*message["headers"], *_marks(call)]
            await send(message)

        arrival = Arrival(receive, self._places)
        self._metrics.begin()
        self._open += 1
        try:
            key = self._admit(scope, headers, call, now)
            arrival.check_announced(headers)
            await self._app(scope, arrival.receive, send_marked)
        except ApiError as error:
            await error_response(error, path)(scope, receive, send_marked)
        except asyncio.CancelledError:  # by the server, when the time to drain is over
            if not has_begun:
                await error_response(stopping(), path)(scope, receive, send_marked)
        except Exception:
            if has_begun:
                raise
            _log.exception("request %s failed", call.request_id)
            await error_response(fault(), path)(scope, receive, send_marked)
        finally:
            self._open -= 1
            arrival.end()
            seconds = perf_counter() - start
            known = path if path in self._paths else _OTHER  # others may say anything
            self._metrics.end(call, known, status, seconds)
            if self._settings.access_log:
                log_request(call, scope["method"], known, status, seconds, key)

    async def last_answers(self) -> None:
        """Wait until nothing is under way, for a moment: then the process ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_ANSWERS_S):
                while self._open:
                    await asyncio.sleep(0.01)

    def _admit(self, scope: Scope, headers: dict[bytes, bytes], call: Call, now: float) -> str | None:
        """The name of the key, if there are keys.

        Raises:
            ApiError: If the request must not go on.
        """
        if scope["path"] in OPEN_PATHS and scope["method"] in ("GET", "HEAD"):
            return None
        key = self._keys.name_of(headers) if self._keys else None
        if self._keys and key is None:
            raise ApiError(401, "the API key is missing or wrong", "invalid_api_key")
        client = scope.get("client")
        wait_s = self._rate.wait_s(key or (client[0] if client else ""), now)
        if wait_s:
            limit = self._settings.requests_per_s
            raise overloaded(f"more than {limit:g} requests a second; try again", max(1, math.ceil(wait_s)))
        if (encoding := headers.get(b"content-encoding", b"identity")).lower() not in (b"", b"identity"):
            raise not_decoded(encoding)
        set_deadline(call, headers, now, self._settings.timeout_s)
        return key


def _marks(call: Call) -> list[tuple[bytes, bytes]]:
    marks = [(b"x-request-id", call.request_id.encode())]
    if timings := call.timings.header():
        marks.append((b"server-timing", timings.encode()))
    return marks
