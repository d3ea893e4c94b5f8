"""One HTTP connection that stays open: bodies out, bodies in.

Takes a URL or host:port; returns the bytes of answers. A connection that the server closed while it was idle is opened
again before a request; no request is sent twice, so that each sample is one. Knows no API.
"""

import json
import select
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPMessage, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 300.0
# Of what costs a server nothing, such as its health; gRPC gives up connecting after as long.
CHEAP_TIMEOUT_S = 20.0
JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class KeepAlive:
    """Requests one after the other over one connection."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        """Get ready to connect.

        Args:
            url: `http://host:port/path`, or host:port.
            timeout_s: Most that a POST waits for its answer.
        """
        parts = urlsplit(url if "//" in url else f"http://{url}")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.netloc, timeout=timeout_s)
        self._timeout_s = timeout_s
        self._prefix = parts.path.rstrip("/")

    def get(self, path: str) -> bytes:
        """The body of a GET, of which none is work for the server.

        Raises:
            RuntimeError: If the status is not 200.
            TimeoutError: If there is no answer in time.
        """
        return self._exchange("GET", path, None, {}, min(self._timeout_s, CHEAP_TIMEOUT_S))[0]

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[bytes, HTTPMessage]:
        """The body and the headers of the answer to a POST.

        Raises:
            RuntimeError: If the status is not 200.
            TimeoutError: If there is no answer in time.
        """
        return self._exchange("POST", path, body, headers, self._timeout_s)

    def get_json(self, path: str) -> Any:
        """What a GET answers in JSON."""
        return json.loads(self.get(path))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[bytes, HTTPMessage]:
        if self._was_closed():
            self._connection.close()
        self._wait_at_most(timeout_s)
        try:
            self._connection.request(method, self._prefix + path, body, dict(headers))
            answer = self._connection.getresponse()
            content = answer.read()
        except TimeoutError as error:
            self._connection.close()
            raise TimeoutError(f"{method} {self._prefix}{path}: no answer within {timeout_s:g} s") from error
        if answer.status != 200:
            reason = content[:300].decode(errors="replace")
            raise RuntimeError(f"HTTP {answer.status} for {self._prefix}{path}: {reason}")
        return content, answer.headers

    def _wait_at_most(self, timeout_s: float) -> None:
        if self._connection.timeout != timeout_s:
            self._connection.timeout = timeout_s
            if self._connection.sock is not None:
                self._connection.sock.settimeout(timeout_s)

    def _was_closed(self) -> bool:
        """Whether there is something to read before anything was asked: the end, as no server speaks first."""
        socket = self._connection.sock
        return socket is not None and bool(select.select([socket], [], [], 0)[0])
