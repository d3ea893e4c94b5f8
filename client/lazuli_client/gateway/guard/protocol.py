"""uvicorn's HTTP, with a limit for the head of a request: neither uvicorn nor its parser has one.

Takes the bytes of a connection; answers a head that is too large with 431 before anything else looks at it.
"""

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

    def data_received(self, data: bytes) -> None:
        """Read on, unless there is a header without an end."""
        if self._is_refused:
            return
        self._untold_bytes += len(data)
        super().data_received(data)
        if self._untold_bytes > MOST_HEAD_BYTES and not self._is_refused:
            self._refuse()

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._head_bytes = self._untold_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a piece of the path."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, or one of those that may follow a body in chunks."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

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

    def _refuse(self) -> None:
        """Say so and close the connection; in the shape of the API, if the path was there already."""
        self._is_refused = True
        message = f"path and headers have more than the {MOST_HEAD_BYTES} bytes that are allowed"
        error = ApiError(431, message, "request_too_large")
        response = error_response(error, self.url.decode("latin-1"))
        headers = [*response.raw_headers, (b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[431], lines, bytes(response.body)))
        self.loop.call_later(_LINGER_S, self.transport.close)
