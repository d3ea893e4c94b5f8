"""How a request goes to the server, as bytes, by each way into it; and what comes back, as an `Outcome`.

Nothing is judged here. What does not come within `PATIENCE_S` is an outcome of its own.
"""

import gzip
import http.client
import io
import json
import queue
import socket
from dataclasses import dataclass, field

import grpc
import numpy as np
from tritonclient.grpc import InferResult, service_pb2

# What no answer takes on a machine that does other things, too.
PATIENCE_S = 60.0
SILENCE, CLOSED = "no answer", "closed"
_SERVICE = "/inference.GRPCInferenceService/"


@dataclass
class Outcome:
    """The end of a request.

    `status`: a gRPC code, an HTTP status, None for an error on a stream, `SILENCE`, `CLOSED`. `outputs`: of each part.
    """

    status: object
    text: str = ""
    outputs: list[dict[str, np.ndarray]] = field(default_factory=list)

    @property
    def is_answer(self):
        return self.status in (grpc.StatusCode.OK, 200)

    @property
    def message(self):
        """That of an error, out of HTTP's JSON if it is in some."""
        try:
            return str(json.loads(self.text)["error"])
        except (ValueError, KeyError, TypeError):
            return self.text


class Grpc:
    """Unary calls and streams of serialised messages on one channel."""

    def __init__(self, address):
        # Of its own: such a channel shares no connection with others.
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(address, options)
        parse = service_pb2.ModelInferResponse.FromString
        self._unary = self._channel.unary_unary(f"{_SERVICE}ModelInfer", bytes, parse)
        parse = service_pb2.ModelStreamInferResponse.FromString
        self._stream = self._channel.stream_stream(f"{_SERVICE}ModelStreamInfer", bytes, parse)

    def ask(self, message):
        try:
            answer = self._unary(message, timeout=PATIENCE_S)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return Outcome(SILENCE)
            return Outcome(error.code(), error.details() or "")
        return Outcome(grpc.StatusCode.OK, outputs=[_arrays(answer)])

    def ask_all(self, messages):
        """All on one stream, at once; returns the ends in the order in which they came, and how the stream ended."""
        requests = queue.SimpleQueue()
        for message in messages:
            requests.put(message)
        call = self._stream(iter(requests.get, None), timeout=PATIENCE_S)
        ends, parts = [], {}
        try:
            for response in call:
                inner = response.infer_response
                if response.error_message:
                    ends.append((inner.id, Outcome(None, response.error_message)))
                else:
                    if inner.outputs:
                        parts.setdefault(inner.id, []).append(_arrays(inner))
                    if inner.parameters["triton_final_response"].bool_param:
                        ends.append((inner.id, Outcome(grpc.StatusCode.OK, outputs=parts.pop(inner.id, []))))
                if len(ends) == len(messages):
                    requests.put(None)
        except grpc.RpcError as error:
            status = SILENCE if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else error.code()
            requests.put(None)
            return ends, Outcome(status, error.details() or "")
        return ends, Outcome(grpc.StatusCode.OK)

    def close(self):
        self._channel.close()


class Http:
    """Requests on a connection that stays open as long as the server keeps it."""

    def __init__(self, address):
        self.address = address
        self._connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)

    def post(self, path, body, headers):
        try:
            self._connection.putrequest("POST", path, skip_host="Host" in headers, skip_accept_encoding=True)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self._connection.putheader(name, value)
            self._connection.endheaders(body)
            answer = self._connection.getresponse()
            content = answer.read()
        except TimeoutError:
            self._connection.close()
            return Outcome(SILENCE)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return Outcome(CLOSED, repr(error))
        return Outcome(answer.status, content.decode(errors="replace"))

    def send_raw(self, data, *, end):
        """Any bytes on a connection of their own; with `end`, nothing comes behind them."""
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            try:
                connection.sendall(data)
                if not end:
                    return Outcome(CLOSED)
                connection.shutdown(socket.SHUT_WR)
                received = b""
                while piece := connection.recv(1 << 16):
                    received += piece
            except TimeoutError:
                return Outcome(SILENCE)
            except OSError as error:
                return Outcome(CLOSED, repr(error))
        return _read(received)

    def close(self):
        self._connection.close()


class _Received:
    """What `HTTPResponse` takes for a socket."""

    def __init__(self, data):
        self._data = data

    def makefile(self, mode):
        return io.BytesIO(self._data)


def _read(received):
    """The first answer in what came; that to `Expect: 100-continue` is none."""
    answer = http.client.HTTPResponse(_Received(received))
    try:
        answer.begin()
        content = answer.read()
        if answer.getheader("Content-Encoding") == "gzip":  # as some requests ask for
            content = gzip.decompress(content)
        return Outcome(answer.status, content.decode(errors="replace"))
    except http.client.HTTPException as error:
        return Outcome(CLOSED, repr(error))


def _arrays(response):
    result = InferResult(response)
    return {output.name: result.as_numpy(output.name) for output in response.outputs}
