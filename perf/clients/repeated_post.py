"""A POST that is sent again and again over one connection, and costs its sender next to nothing.

Takes a URL and a body, returns the bytes of answers. Python's `http.client` takes a quarter of a millisecond for each
request, which would be counted as the server's.
"""

import re
import socket
from urllib.parse import urlsplit

_TIMEOUT_S = 300.0
_PIECE_BYTES = 1 << 18
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class RepeatedPost:
    """One request."""

    def __init__(self, url: str, body: bytes, content_type: str = "application/json") -> None:
        """Connect.

        Args:
            url: `http://host:port/path`.
            body: Of each request.
            content_type: Of the body.
        """
        parts = urlsplit(url)
        self._url = url
        self._socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: {content_type}\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def send(self) -> bytes:
        """The body of the answer, once all of it is there.

        Raises:
            RuntimeError: If the status is not 200, or the answer does not say how long it is.
        """
        self._socket.sendall(self._request)
        head, end, body = b"", b"", b""
        while not end:
            head += self._receive()
            head, end, body = head.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is None:
            raise RuntimeError(f"{self._url}: the answer does not say how long it is: {head!r}")
        pieces, left = [body], int(length[1]) - len(body)
        while left > 0:
            pieces.append(self._receive())
            left -= len(pieces[-1])
        if head.split(b" ", 2)[1] != b"200":
            raise RuntimeError(f"{self._url}: {head.splitlines()[0]!r}: {b''.join(pieces)[:300]!r}")
        return b"".join(pieces)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self) -> bytes:
        piece = self._socket.recv(_PIECE_BYTES)
        if not piece:
            raise RuntimeError(f"{self._url}: the connection was closed")
        return piece
