"""uvicorn's HTTP, with limits for the head of a request: neither uvicorn nor its parser has one.

Takes the bytes of a connection; answers a head that is too large with 431 before anything else looks at it, and one
that takes too long with 408. A body that was answered before it came is read on for as long, then the connection is
closed.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from lazuli_client.gateway.apis.shapes import error_response
from lazuli_client.gateway.errors import ApiError

# Of path and headers together; applications need a few thousand for their keys, cookies and traces.
MOST_HEAD_BYTES = 65_536
# A connection that is closed while data comes is reset, and the answer lost: what comes is read, and let fall.
_LINGER_S = 1.0


class LimitedHttp(HttpToolsProtocol):
    """One connection."""

    url = b""
    _head_bytes = 0  # of path and headers, as far as the parser has told
    _untold_bytes = 0  # that came since the parser told anything: of a header that has not ended
    _is_refused = False
    _is_in_body = False  # else in a head, or between requests
    _alarm: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, arrival_timeout_s: float = 20.0, **options: Any) -> None:
        """Wrap a connection.

        Args:
            *args: Of uvicorn.
            arrival_timeout_s: A head must be whole in this time, and a body that was answered before.
            **options: Of uvicorn.
        """
        super().__init__(*args, **options)
        self._arrival_timeout_s = arrival_timeout_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first byte as long as between two requests."""
        super().connection_made(transport)
        self._alarm = self.loop.call_later(self.timeout_keep_alive, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is to be waited for any more."""
        self._calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless there is a header without an end."""
        if self._is_refused:
            return
        if self._alarm is None and not self._is_in_body:
            self._expect_head()  # empty lines before it count
        self._untold_bytes += len(data)
        super().data_received(data)
        if self._untold_bytes > MOST_HEAD_BYTES and not self._is_refused:
            self._refuse()

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._head_bytes = self._untold_bytes = 0
        self._expect_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a piece of the path."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, or one of those that may follow a body in chunks."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._calm()
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is there, too."""
        self._calm()
        self._is_in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Who was answered before the body came may send it, but not for ever."""
        super().on_response_complete()
        if self._is_in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._calm()
            self._alarm = self.loop.call_later(self._arrival_timeout_s, self.transport.close)
        elif self._alarm is not None:  # half of the next head, of which no more was read until now
            self._expect_head()

    def on_body(self, body: bytes) -> None:
        """A body has a limit of its own."""
        self._untold_bytes = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be parsed, or was refused while it was."""
        if self._is_refused:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        self._untold_bytes = 0
        self._head_bytes += size
        if self._head_bytes > MOST_HEAD_BYTES:
            self._is_refused = True
            raise ValueError("the parser stops where its caller fails")

    def _expect_head(self) -> None:
        self._calm()
        self._alarm = self.loop.call_later(self._arrival_timeout_s, self._head_is_late)

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _head_is_late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect_head()  # the answer to the request before comes first
        elif not self._is_refused:
            message = f"path and headers did not arrive within {self._arrival_timeout_s:g} seconds"
            self._answer_head(ApiError(408, message, "timeout"))

    def _refuse(self) -> None:
        message = f"path and headers have more than the {MOST_HEAD_BYTES} bytes that are allowed"
        self._answer_head(ApiError(431, message, "request_too_large"))

    def _answer_head(self, error: ApiError) -> None:
        """Say so and close the connection; in the shape of the API, if the path was there already."""
        self._is_refused = True
        response = error_response(error, self.url.decode("latin-1"))
        headers = [one for one in response.raw_headers if one[0] != b"connection"] + [(b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[error.status], lines, bytes(response.body)))
        self.loop.call_later(_LINGER_S, self.transport.close)
