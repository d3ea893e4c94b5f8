"""The synchronous HTTP transport, on urllib3.

Takes requests, returns outputs; `http_message.py` makes the messages. tritonclient's own client for HTTP runs on
gevent, whose connections belong to the thread that made them, and whose event loops keep two file descriptors for
every thread that has ever used it.
"""

from http.client import HTTPException
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError

from lazuli_client import codec, forking
from lazuli_client.embeddings import Outputs
from lazuli_client.errors import LazuliError
from lazuli_client.http_connection import OpenSockets, abandon, open_pool
from lazuli_client.http_message import from_answer, to_post
from lazuli_client.request import EmbedRequest
from lazuli_client.tls import Tls
from lazuli_client.transport import Stream, no_streams_over_http


class HttpTransport:
    """A keep-alive connection for each request that is under way at once; all threads share them."""

    has_streams = False

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        self._address = address
        self._tls = tls
        self._parts = urlsplit(f"//{address}")
        self._open()
        forking.watch(self)

    def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """One POST to `/v2/models/<model>/infer`."""
        path, body, headers = to_post(request)
        try:
            response = self._pool.urlopen(
                "POST",
                self._parts.path + path,
                body,
                headers,
                timeout=urllib3.Timeout(total=timeout_s),
                retries=False,
                redirect=False,
            )
        except (HTTPError, HTTPException, OSError) as error:
            raise self._error(error, timeout_s) from error
        return from_answer(response.status, response.headers, response.data)

    def open_stream(self) -> Stream:
        """Not over HTTP."""
        raise no_streams_over_http()

    def close(self) -> None:
        """Close the connections; a request that is under way fails."""
        self._pool.close()
        self._sockets.shut_down()

    def after_fork(self) -> None:
        """Take connections of its own in a child process."""
        abandon(self._pool)
        self._open()

    def _open(self) -> None:
        self._sockets = OpenSockets()
        self._pool = open_pool(self._parts.hostname or "", self._parts.port, self._tls, self._sockets)

    def _error(self, error: Exception, timeout_s: float) -> LazuliError:
        # Nobody to connect to is no timeout, though urllib3 calls it one.
        if isinstance(error, urllib3.exceptions.TimeoutError) and not isinstance(error, NewConnectionError):
            error = TimeoutError()
        elif isinstance(error, ProtocolError) and len(error.args) > 1:
            error = error.args[1]  # what happened, without urllib3's name for it
        return codec.from_http_error(error, self._address, timeout_s, is_tls=self._tls is not None)
