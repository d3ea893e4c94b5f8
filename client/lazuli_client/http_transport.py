"""The synchronous HTTP transport, on urllib3.

Takes requests, returns outputs; tritonclient lays out the messages. Its own client for HTTP runs on gevent, whose
connections belong to the thread that made them, and whose event loops keep two file descriptors for every thread that
has ever used it.
"""

import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3
from tritonclient.http import InferenceServerClient, InferInput
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError

from lazuli_client import codec
from lazuli_client.embeddings import Outputs
from lazuli_client.errors import LazuliError, from_http_status
from lazuli_client.request import EmbedRequest
from lazuli_client.tls import Tls
from lazuli_client.transport import Stream, no_streams_over_http

_JSON_BYTES = "Inference-Header-Content-Length"
# More connections than this are not kept after their request.
_MAX_IDLE = 256
_PIECE_BYTES = 1 << 18


class HttpTransport:
    """A keep-alive connection for each request that is under way at once; all threads share them."""

    has_streams = False

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        self._address = address
        parts = urlsplit(f"//{address}")
        settings: dict[str, Any] = {"ssl_context": tls.ssl_context()} if tls else {}
        kind = urllib3.HTTPSConnectionPool if tls else urllib3.HTTPConnectionPool
        self._pool = kind(parts.hostname or "", parts.port, maxsize=_MAX_IDLE, retries=False, **settings)
        self._path = parts.path

    def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """One POST to `/v2/models/<model>/infer`."""
        inputs: list[InferInput] = codec.to_http(request)
        body, json_bytes = InferenceServerClient.generate_request_body(inputs, parameters=request.sent_parameters)
        headers = {} if json_bytes is None else {_JSON_BYTES: str(json_bytes)}
        path = f"{self._path}/v2/models/{quote(request.model)}/infer"
        try:
            status, answered, raw = self._exchange(path, body, headers, timeout_s)
        except (HTTPError, HTTPException, OSError) as error:
            raise self._error(error, timeout_s) from error
        if status != 200:
            raise from_http_status(status, _message(raw))
        length = answered.get(_JSON_BYTES)
        return codec.from_http(InferenceServerClient.parse_response_body(raw, header_length=length and int(length)))

    def open_stream(self) -> Stream:
        """Not over HTTP."""
        raise no_streams_over_http()

    def close(self) -> None:
        """Close the connections; one that is in use, after its answer."""
        self._pool.close()

    def _exchange(
        self, path: str, body: bytes, headers: dict[str, str], timeout_s: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body, all within the timeout: urllib3's own is for each read."""
        end = time.monotonic() + timeout_s
        timeout = urllib3.Timeout(total=timeout_s)
        # Left early, the connection is closed: it may hold half an answer.
        with self._pool.urlopen(
            "POST", path, body, headers, timeout=timeout, retries=False, preload_content=False
        ) as response:
            pieces: list[bytes] = []
            while (left_s := end - time.monotonic()) > 0:
                # Once all is read, the connection is back in the pool.
                if sock := getattr(response.connection, "sock", None):
                    sock.settimeout(left_s)
                if not (piece := response.read1(_PIECE_BYTES)):
                    return response.status, response.headers, b"".join(pieces)
                pieces.append(piece)
        raise TimeoutError

    def _error(self, error: Exception, timeout_s: float) -> LazuliError:
        # Nobody to connect to is no timeout, though urllib3 calls it one.
        if isinstance(error, urllib3.exceptions.TimeoutError) and not isinstance(error, NewConnectionError):
            error = TimeoutError()
        elif isinstance(error, ProtocolError) and len(error.args) > 1:
            error = error.args[1]  # what happened, without urllib3's name for it
        return codec.from_http_error(error, self._address, timeout_s)


def _message(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["error"])
    except (ValueError, KeyError, TypeError):
        return raw.decode(errors="replace").strip()
