"""urllib3's connections with what it lacks: a limit of time for a whole answer, and an end from another thread.

Takes an address, returns a pool. Knows sockets, but not what is sent over them.
"""

import contextlib
import io
import queue
import socket
import threading
import time
import weakref
from functools import partial
from http.client import HTTPResponse
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from lazuli_client.tls import Tls

# More connections than this are not kept after their request.
_MAX_IDLE = 256


class OpenSockets:
    """The sockets of a pool, those in use included; urllib3 knows the idle ones only."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_shut_down = False

    def add(self, sock: socket.socket) -> None:
        """Take up a socket that is connected."""
        with self._lock:
            self._sockets.add(sock)
            if self._is_shut_down:
                _shut_down(sock)

    def shut_down(self) -> None:
        """End all reading and writing, whatever thread waits for it; later sockets are shut down at once."""
        with self._lock:
            self._is_shut_down = True
            for sock in self._sockets:
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the peer was faster
        # Not SSLSocket's, which takes the session away from the thread that reads.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def open_pool(host: str, port: int | None, tls: Tls | None, sockets: OpenSockets) -> urllib3.HTTPConnectionPool:
    """A pool whose sockets are in `sockets` and whose answers come within `Timeout.total`."""
    settings: dict[str, Any] = {"maxsize": _MAX_IDLE, "retries": False, "sockets": sockets}
    if tls:
        return _TlsPool(host, port, ssl_context=tls.ssl_context(), **settings)
    return _Pool(host, port, **settings)


def abandon(pool: urllib3.HTTPConnectionPool) -> None:
    """Give up a pool in a child process: its sockets are closed here and stay as they are for the parent."""
    idle = pool.pool
    if idle is None:  # closed
        return
    for connection in idle.queue:
        if connection is not None:
            connection.close()
    # Another thread of the parent may have held the queue's lock, and urllib3 empties the queue at the exit.
    queue.LifoQueue.__init__(idle, idle.maxsize)


class _Reads(io.RawIOBase):
    """The bytes of a socket until a moment of `time.monotonic()`; a timeout of a socket is for each read only."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock = sock
        self._end = end
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, end: float, **settings: Any) -> None:
        super().__init__(_Source(sock, end), *args, **settings)  # type: ignore[arg-type]


class _Source:
    """What `HTTPResponse` wants of a socket."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._reads = _Reads(sock, end)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reads)


class _Connection(HTTPConnection):
    def __init__(self, *args: Any, sockets: OpenSockets, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sockets = sockets

    def connect(self) -> None:
        super().connect()
        self._sockets.add(self.sock)

    def getresponse(self) -> Any:
        # urllib3 has set `timeout` to what is left of the total.
        self.response_class = partial(_Response, end=time.monotonic() + (self.timeout or 0))  # type: ignore[assignment]
        return super().getresponse()


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection
