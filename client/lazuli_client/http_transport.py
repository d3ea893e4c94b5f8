"""The synchronous HTTP transport.

Takes requests, returns outputs. `tritonclient.http` runs on gevent: its connections and locks belong to the
event hub of the thread that made them, and a client shared by eight threads hangs for ever (tried with 2.73).
So each thread has its own client, and `any_thread` is False: only the few long-lived threads of
`LazuliClient` come here.
"""

import threading
from http.client import HTTPException
from typing import Any

import gevent
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lazuli_client import codec
from lazuli_client.embeddings import Outputs
from lazuli_client.request import EmbedRequest
from lazuli_client.transport import Stream, no_streams_over_http


class HttpTransport:
    """One keep-alive connection a thread."""

    has_streams = False
    any_thread = False

    def __init__(self, address: str) -> None:
        self._address = address
        self._local = threading.local()
        self._clients: list[Any] = []
        self._lock = threading.Lock()

    def send(self, request: EmbedRequest, timeout_s: float) -> Outputs:
        """One POST to `/v2/models/<model>/infer`."""
        inputs = codec.to_http(request)
        try:
            # tritonclient's own timeouts are per read; this one is for the whole exchange.
            with gevent.Timeout(timeout_s, TimeoutError):
                result = self._client().infer(request.model, inputs, parameters=request.sent_parameters)
        except InferenceServerException as error:
            raise codec.from_http_error(error, self._address, timeout_s) from error
        except (OSError, HTTPException) as error:  # OSError is TimeoutError's base too
            self._drop_client()
            raise codec.from_http_error(error, self._address, timeout_s) from error
        return codec.from_http(result)

    def open_stream(self) -> Stream:
        """Not over HTTP."""
        raise no_streams_over_http()

    def close(self) -> None:
        """Close the connections of all threads; none may be sending any more."""
        with self._lock:
            for client in self._clients:
                client.close()
            self._clients.clear()

    def _client(self) -> Any:
        client = getattr(self._local, "client", None)
        if client is None:
            # The timeouts are out of the way: `send` has its own.
            client = triton_http.InferenceServerClient(self._address, connection_timeout=3600, network_timeout=3600)
            self._local.client = client
            with self._lock:
                self._clients.append(client)
        return client

    def _drop_client(self) -> None:
        """Close this thread's client: its connection may hold half an answer."""
        client = self._local.__dict__.pop("client", None)
        if client is not None:
            with self._lock:
                self._clients.remove(client)
            client.close()
