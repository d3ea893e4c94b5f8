"""Locust's users over gRPC and HTTP: what `lazuli_client` sends, without its retries, and every answer checked.

Each user has a connection of its own. gRPC calls fire locust's event for a request, so they stand in its statistics,
its pages and its files as HTTP's do.
"""

import argparse
import itertools
import os
import time
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import gevent
import grpc  # type: ignore[import-untyped, unused-ignore]
import tritonclient.http as triton_http
from locust import FastHttpUser, User, task
from tritonclient.grpc import service_pb2_grpc

from lazuli_client import codec
from lazuli_client.grpc_transport import CHANNEL_OPTIONS
from swarm.traffic import BULK, QUERY, RERANK, Kind, Traffic, check_answer
from texts.files import PASSAGES, QUERIES, read_texts

GRPC = "gRPC"
_LENGTH_HEADER = "Inference-Header-Content-Length"
TIMEOUT_S = 60.0
_GRPC_PORT = 8001
_numbers = itertools.count()


def grpc_address(host: str | None, wanted: str | None) -> str:
    """host:port of gRPC: as wanted, or the usual port beside the HTTP address."""
    return wanted or f"{urlsplit(host or '').hostname or '127.0.0.1'}:{_GRPC_PORT}"


def find_texts(options: argparse.Namespace) -> tuple[Sequence[str], Sequence[str]]:
    """Queries and passages of the files that the options name.

    Raises:
        ValueError: If there are none in them.
        OSError: If they cannot be read.
    """
    return _read(*(options.queries or [str(QUERIES)])), _read(*(options.passages or [str(PASSAGES)]))


@cache
def _read(*files: str) -> Sequence[str]:
    return read_texts(files)


class _Worker(User):
    """Sends requests of one kind, one after the other."""

    abstract = True
    kind: Kind

    def on_start(self) -> None:
        """Make a source of requests."""
        options = self.environment.parsed_options
        # Another one for each user of each process.
        seed = f"{options.seed} {os.getpid()} {next(_numbers)}"
        self._traffic = Traffic(*find_texts(options), options.rerank_model or "rerank", seed)

    def wait_time(self) -> float:
        """Between an answer and the next request."""
        low, high = self.kind.wait_s
        return low + (high - low) * self._traffic.chance()


class GrpcWorker(_Worker):
    """Unary calls on a channel of its own."""

    abstract = True

    def on_start(self) -> None:
        """Connect."""
        super().on_start()
        address = grpc_address(self.host, self.environment.parsed_options.grpc_host)
        options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def on_stop(self) -> None:
        """Disconnect."""
        self._channel.close()

    @task
    def ask(self) -> None:
        """One request, and an event that tells locust of it."""
        request = self._traffic.make(self.kind)
        message = codec.to_grpc(request)
        failure: Exception | None = None
        num_bytes, began_at, start = 0, time.time(), time.perf_counter()
        try:
            answer = self._stub.ModelInfer(message, timeout=TIMEOUT_S)
            elapsed_ms = (time.perf_counter() - start) * 1e3
            num_bytes = answer.ByteSize()
            check_answer(request, codec.from_grpc(answer))
        except grpc.RpcError as error:
            elapsed_ms = (time.perf_counter() - start) * 1e3
            failure = codec.from_grpc_error(error)
        except Exception as error:  # an answer that is not right is a failure of the request
            failure = error
        self.environment.events.request.fire(
            request_type=GRPC,
            name=self.kind.name,
            start_time=began_at,
            response_time=elapsed_ms,
            response_length=num_bytes,
            exception=failure,
            context={},
        )
        _pause_after(failure)


class HttpWorker(_Worker, FastHttpUser):
    """Binary `infer` on a connection of its own."""

    abstract = True
    network_timeout = connection_timeout = TIMEOUT_S

    @task
    def ask(self) -> None:
        """One POST."""
        request = self._traffic.make(self.kind)
        body, json_size = triton_http.InferenceServerClient.generate_request_body(
            codec.to_http(request), parameters=request.parameters
        )
        path, headers = f"/v2/models/{request.model}/infer", {_LENGTH_HEADER: str(json_size)}
        failure: Exception | None = None
        with self.client.post(path, data=body, headers=headers, name=self.kind.name, catch_response=True) as answer:
            try:
                check_answer(request, _outputs_of(answer))
            except Exception as error:  # an answer that is not right is a failure of the request
                failure = error
                answer.failure(str(error))
        _pause_after(failure)


def _outputs_of(answer: Any) -> Any:
    if answer.status_code != 200:
        raise RuntimeError(f"HTTP {answer.status_code}: {(answer.text or str(answer.error))[:200]}")
    header_length = int(answer.headers[_LENGTH_HEADER])
    return codec.from_http(
        triton_http.InferenceServerClient.parse_response_body(answer.content, header_length=header_length)
    )


def _pause_after(failure: Exception | None) -> None:
    """A server that refuses at once is not to be asked again at once: that would measure only its refusals."""
    if failure is not None:
        gevent.sleep(0.1)


class GrpcQuery(GrpcWorker):
    """Someone who types queries, over gRPC."""

    kind = QUERY


class HttpQuery(HttpWorker):
    """Someone who types queries, over HTTP."""

    kind = QUERY


class GrpcBulk(GrpcWorker):
    """A job that embeds passages as quickly as it can, over gRPC."""

    kind = BULK


class HttpBulk(HttpWorker):
    """A job that embeds passages as quickly as it can, over HTTP."""

    kind = BULK


class GrpcRerank(GrpcWorker):
    """Someone whose query has its candidates reranked, over gRPC."""

    kind = RERANK


class HttpRerank(HttpWorker):
    """Someone whose query has its candidates reranked, over HTTP."""

    kind = RERANK
