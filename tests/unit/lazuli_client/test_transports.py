"""The real transports, against servers in this process that speak the wire format."""

import asyncio
import json
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor

from lazuli_client import (
    AsyncLazuliClient,
    ClosedError,
    ConnectionFailedError,
    DeadlineError,
    InvalidInputError,
    LazuliClient,
    ModelNotFoundError,
    ServerError,
    UnavailableError,
    UnsupportedError,
)
from lazuli_client.grpc_transport import GrpcStream

TEXTS = [f"text {place}" for place in range(11)]


class Release(threading.Event):
    """Lets requests go that hang; counts them in `arrived`."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)


def behave(texts: list[str], released: Release) -> tuple[str, int, str] | None:
    """Texts that make the servers fail: gRPC code, HTTP status, message."""
    if "hang" in texts:
        released.arrived.release()
        released.wait(20)
    if "full" in texts:
        return "UNAVAILABLE", 503, "Exceeds maximum queue size"
    if "long" in texts:
        return "INVALID_ARGUMENT", 400, f"text[{texts.index('long')}]: too long"
    if "stub" in texts:
        return "INTERNAL", 500, "in ensemble 'embed', Stub process 'embedding_0_0' is not healthy."
    if "crash" in texts:
        return "INTERNAL", 500, "it broke"
    return None


class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, fake, released):
        self.fake, self.released = fake, released

    def _texts(self, request):
        return [raw.decode() for raw in deserialize_bytes_tensor(request.raw_input_contents[0])]

    def _response(self, request, **outputs):
        response = service_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
        for name, values in outputs.items():
            datatype = {"float32": "FP32", "int32": "INT32", "bool": "BOOL"}[values.dtype.name]
            response.outputs.add(name=name, datatype=datatype, shape=values.shape)
            response.raw_output_contents.append(values.tobytes())
        return response

    def ModelInfer(self, request, context):  # noqa: N802 - the name of the RPC
        texts = self._texts(request)
        if request.model_name != "embed":
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown model")
        if failure := behave(texts, self.released):
            context.abort(grpc.StatusCode[failure[0]], failure[2])
        return self._response(
            request,
            embedding=np.stack([self.fake.vector(text) for text in texts]),
            token_count=np.full((len(texts), 1), 2, np.int32),
            truncated=np.zeros((len(texts), 1), np.bool_),
        )

    def ModelStreamInfer(self, requests, context) -> Iterator[service_pb2.ModelStreamInferResponse]:  # noqa: N802
        for request in requests:
            texts = self._texts(request)
            if "drop" in texts:
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            end = service_pb2.ModelStreamInferResponse(infer_response=self._response(request))
            end.infer_response.parameters["triton_final_response"].bool_param = True
            if failure := behave(texts, self.released):
                end.error_message = failure[2]
            else:
                for row, text in enumerate(texts):
                    part = self._response(
                        request,
                        embedding=self.fake.vector(text)[None],
                        index=np.array([[row]], np.int32),
                        token_count=np.array([[2]], np.int32),
                    )
                    yield service_pb2.ModelStreamInferResponse(infer_response=part)
            yield end


def http_handler(fake, released):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            header_bytes = int(self.headers["Inference-Header-Content-Length"])
            texts = [raw.decode() for raw in deserialize_bytes_tensor(body[header_bytes:])]
            if "/embed/" not in self.path:
                self.reply(404, json.dumps({"error": "unknown model"}).encode())
            elif failure := behave(texts, released):
                self.reply(failure[1], json.dumps({"error": failure[2]}).encode())
            elif "drop" in texts:
                self.close_connection = True
            else:
                self.reply(200, *self.answer(texts), pause_s=0.3 if "trickle" in texts else 0.0)

        def answer(self, texts):
            outputs = {
                "embedding": ("FP32", np.stack([fake.vector(text) for text in texts])),
                "token_count": ("INT32", np.full((len(texts), 1), 2, np.int32)),
                "truncated": ("BOOL", np.zeros((len(texts), 1), np.bool_)),
            }
            described = [
                {
                    "name": name,
                    "datatype": datatype,
                    "shape": list(values.shape),
                    "parameters": {"binary_data_size": values.nbytes},
                }
                for name, (datatype, values) in outputs.items()
            ]
            header = json.dumps({"outputs": described}).encode()
            return header, b"".join(values.tobytes() for _, values in outputs.values())

        def reply(self, status, header, binary=b"", pause_s=0.0):
            self.send_response(status)
            self.send_header("Content-Length", str(len(header) + len(binary)))
            self.send_header("Inference-Header-Content-Length", str(len(header)))
            self.end_headers()
            body = header + binary
            while pause_s and body and not released.wait(pause_s):
                self.wfile.write(body[:1])
                body = body[1:]
            self.wfile.write(body)

    return Handler


@pytest.fixture
def grpc_server(fake):
    released = Release()
    server = grpc.server(futures.ThreadPoolExecutor(16))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Servicer(fake, released), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield SimpleNamespace(protocol="grpc", url=f"127.0.0.1:{port}", released=released)
    released.set()
    server.stop(None).wait()


@pytest.fixture
def http_server(fake):
    released = Release()
    server = ThreadingHTTPServer(("127.0.0.1", 0), http_handler(fake, released))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield SimpleNamespace(protocol="http", url=f"http://127.0.0.1:{server.server_address[1]}", released=released)
    released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["grpc", "http"])
def server(request):
    return request.getfixturevalue(f"{request.param}_server")


ERRORS = [
    ("long", InvalidInputError, r"text\[7\]: too long"),
    ("full", UnavailableError, "Exceeds maximum queue size"),
    ("crash", ServerError, "it broke"),
    ("hang", DeadlineError, "no answer"),
]


def settings_of(server, **settings):
    return {"protocol": server.protocol, "retries": 0, "rows_per_request": 3, "timeout_s": 10, **settings}


def test_sync(server, fake):
    with LazuliClient(server.url, **settings_of(server)) as client:
        result = client.embed(TEXTS)
        assert client.health().is_ready
    assert np.array_equal(result.embeddings, np.stack([fake.vector(text) for text in TEXTS]))


@pytest.mark.parametrize(("text", "kind", "match"), ERRORS)
def test_sync_errors(server, text, kind, match):
    texts = [*TEXTS[:7], text, *TEXTS[7:]]
    with LazuliClient(server.url, **settings_of(server, timeout_s=0.3 if text == "hang" else 10)) as client:
        with pytest.raises(kind, match=match):
            client.embed(texts)
        assert len(client.embed(TEXTS)) == 11  # the connection is in order


def test_sync_from_many_threads(server, fake):
    expected = np.stack([fake.vector(text) for text in TEXTS])
    with LazuliClient(server.url, **settings_of(server)) as client, futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: client.embed(TEXTS).embeddings, range(24)))
    assert all(np.array_equal(result, expected) for result in results)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_clients_leave_no_file_open(server):
    """Neither those that one thread uses, nor those that several do at once, nor those of asyncio."""
    settings = settings_of(server, max_in_flight=3)

    def use():
        with LazuliClient(server.url, **settings) as client, futures.ThreadPoolExecutor(3) as threads:
            assert client.health().is_ready
            assert list(threads.map(len, threads.map(client.embed, [TEXTS, "a", TEXTS]))) == [11, 1, 11]

    async def use_async():
        async with AsyncLazuliClient(server.url, **settings) as client:
            assert len(await client.embed(TEXTS)) == 11

    use()
    await use_async()
    before = open_files()
    for _ in range(50):
        use()
    for _ in range(10):
        await use_async()
    deadline = time.monotonic() + 20  # the server's ends are closed by its own threads
    while open_files() > before and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert open_files() <= before


def test_the_timeout_holds_for_an_answer_that_trickles(http_server):
    with LazuliClient(http_server.url, **settings_of(http_server, timeout_s=1.0)) as client:
        with pytest.raises(DeadlineError, match="within 1 s"):
            client.embed("trickle")
        assert len(client.embed("a")) == 1


def test_a_dead_model_process_is_unavailable(server):
    with LazuliClient(server.url, **settings_of(server)) as client, pytest.raises(UnavailableError, match="healthy"):
        client.embed("stub")


def test_sync_unknown_model(server):
    with LazuliClient(server.url, **settings_of(server, model="other")) as client:
        with pytest.raises(ModelNotFoundError, match="unknown model"):
            client.embed("a")
        assert not client.health().is_ready


async def test_async(server, fake):
    async with AsyncLazuliClient(server.url, **settings_of(server)) as client:
        result = await client.embed(TEXTS)
        assert (await client.health()).is_ready
    assert np.array_equal(result.embeddings, np.stack([fake.vector(text) for text in TEXTS]))


@pytest.mark.parametrize(("text", "kind", "match"), ERRORS)
async def test_async_errors(server, text, kind, match):
    texts = [*TEXTS[:7], text, *TEXTS[7:]]
    async with AsyncLazuliClient(server.url, **settings_of(server, timeout_s=0.3 if text == "hang" else 10)) as client:
        with pytest.raises(kind, match=match):
            await client.embed(texts)
        assert len(await client.embed(TEXTS)) == 11


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_nobody_there(protocol):
    address = "127.0.0.1:1"
    client = LazuliClient(address, protocol=protocol, retries=0, timeout_s=5)
    with client, pytest.raises(ConnectionFailedError):
        client.embed("a")
    async with AsyncLazuliClient(address, protocol=protocol, retries=0, timeout_s=5) as client:
        with pytest.raises(ConnectionFailedError):
            await client.embed("a")


@pytest.fixture
def slow_to_accept(grpc_server):
    """The address of a gate before the server that lets a connection through only after 0.4 s."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = grpc_server.url.split(":")
    ends = []

    def pump(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass

    def serve():
        while True:
            try:
                near = listener.accept()[0]
            except OSError:
                return
            time.sleep(0.4)
            far = socket.create_connection((host, int(port)))
            ends.extend((near, far))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    gate = threading.Thread(target=serve)
    gate.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    gate.join()
    for end in ends:
        end.close()


async def test_a_server_that_is_slow_to_connect_to_is_waited_for(slow_to_accept):
    with LazuliClient(slow_to_accept, retries=0, timeout_s=10) as client:
        assert len(client.embed("a")) == 1
    async with AsyncLazuliClient(slow_to_accept, retries=0, timeout_s=10) as client:
        assert len(await client.embed("a")) == 1


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_a_name_that_does_not_resolve(protocol):
    address = "no-such-host.invalid:8001"
    with (
        LazuliClient(address, protocol=protocol, retries=0, timeout_s=20) as client,
        pytest.raises(ConnectionFailedError),
    ):
        client.embed("a")
    async with AsyncLazuliClient(address, protocol=protocol, retries=0, timeout_s=20) as client:
        with pytest.raises(ConnectionFailedError):
            await client.embed("a")


async def test_use_after_close(server):
    client = LazuliClient(server.url, **settings_of(server))
    with client:
        client.embed(TEXTS)
    for texts in ("a", TEXTS):
        with pytest.raises(ClosedError, match="the client is closed"):
            client.embed(texts)
    with pytest.raises(ClosedError, match="the client is closed"):
        next(client.embed_iter(TEXTS))
    used = AsyncLazuliClient(server.url, **settings_of(server))
    async with used:
        await used.embed(TEXTS)
    with pytest.raises(ClosedError, match="the client is closed"):
        await used.embed("a")
    with pytest.raises(ClosedError, match="the client is closed"):
        await anext(used.embed_iter(TEXTS))


async def test_close_ends_the_calls_that_are_under_way(server):
    texts = ["hang"] * 4
    settings = settings_of(server, timeout_s=60, rows_per_request=1, max_in_flight=2)
    client = LazuliClient(server.url, **settings)
    with futures.ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(client.embed, given) for given in ("hang", "hang", texts)]
        assert all(server.released.arrived.acquire(timeout=20) for _ in range(4))
        client.close()
        assert [type(call.exception()) for call in calls] == [ClosedError] * 3
    used = AsyncLazuliClient(server.url, **settings)
    tasks = [asyncio.create_task(used.embed(given)) for given in ("hang", texts)]
    assert await asyncio.to_thread(server.released.arrived.acquire, timeout=20)
    assert await asyncio.to_thread(server.released.arrived.acquire, timeout=20)
    await used.close()
    assert [type(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == [ClosedError] * 2


async def test_close_ends_the_streams_that_are_under_way(grpc_server):
    settings = settings_of(grpc_server, timeout_s=60)
    client = LazuliClient(grpc_server.url, **settings)
    with futures.ThreadPoolExecutor(1) as threads:
        call = threads.submit(list, client.embed_iter(["hang"]))
        assert grpc_server.released.arrived.acquire(timeout=20)
        client.close()
        assert type(call.exception()) is ClosedError
    used = AsyncLazuliClient(grpc_server.url, **settings)
    task = asyncio.create_task(anext(used.embed_iter(["hang"])))
    assert await asyncio.to_thread(grpc_server.released.arrived.acquire, timeout=20)
    await used.close()
    assert [type(error) for error in await asyncio.gather(task, return_exceptions=True)] == [ClosedError]


async def test_a_caller_who_is_cancelled_is_told_so(server):
    async with AsyncLazuliClient(server.url, **settings_of(server)) as client:
        task = asyncio.create_task(client.embed("hang"))
        assert await asyncio.to_thread(server.released.arrived.acquire, timeout=20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def fork(work: Callable[[], None]) -> int:
    """The process id of a child that does the work, or fails."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


# Python 3.12 warns of what is tested here.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_an_http_client_is_used_on_both_sides_of_a_fork(http_server, fake):
    with LazuliClient(http_server.url, **settings_of(http_server)) as client:
        client.embed(TEXTS)  # connections and threads that a child must not use

        def use(name: str) -> None:
            for place in range(30):
                texts = [f"{name} {place}", *TEXTS[: 10 * (place % 3 == 0)]]
                assert np.array_equal(client.embed(texts).embeddings, np.stack([fake.vector(text) for text in texts]))

        def use_and_close() -> None:
            use("child")
            client.close()

        child = fork(use_and_close)
        use("parent")
        assert os.waitpid(child, 0)[1] == 0
        assert len(client.embed(TEXTS)) == 11


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_grpc_client_that_was_used_before_a_fork_says_so_in_the_child(grpc_server):
    with LazuliClient(grpc_server.url, **settings_of(grpc_server)) as client:
        client.embed(TEXTS)

        def use() -> None:
            for texts in ("a", TEXTS):
                with pytest.raises(UnsupportedError, match="make a client of your own in each process"):
                    client.embed(texts)
            with pytest.raises(UnsupportedError, match="forked"):
                next(client.embed_iter(TEXTS))
            client.close()

        assert os.waitpid(fork(use), 0)[1] == 0
        assert len(client.embed(TEXTS)) == 11


async def test_a_dropped_http_connection(http_server):
    with LazuliClient(http_server.url, **settings_of(http_server)) as client:
        with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1"):
            client.embed("drop")
        assert len(client.embed("a")) == 1
    async with AsyncLazuliClient(http_server.url, **settings_of(http_server)) as client:
        with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1"):
            await client.embed("drop")


async def test_no_streams_over_http(http_server):
    with LazuliClient(http_server.url, protocol="http") as client, pytest.raises(UnsupportedError):
        client.embed_iter(TEXTS)
    async with AsyncLazuliClient(http_server.url, protocol="http") as client:
        with pytest.raises(UnsupportedError):
            client.embed_iter(TEXTS)


async def test_stream(grpc_server, fake):
    with LazuliClient(grpc_server.url, **settings_of(grpc_server)) as client:
        parts = list(client.embed_iter(TEXTS))
    async with AsyncLazuliClient(grpc_server.url, **settings_of(grpc_server)) as client:
        async_parts = [part async for part in client.embed_iter(TEXTS)]
    for found in (parts, async_parts):
        assert sorted(row for part in found for row in part.indices) == list(range(11))
        for part in found:
            assert np.array_equal(part.embeddings, np.stack([fake.vector(TEXTS[row]) for row in part.indices]))


STREAM_ERRORS = [*ERRORS, ("drop", ConnectionFailedError, r"Socket closed \(request of rows")]


@pytest.mark.parametrize(("text", "kind", "match"), STREAM_ERRORS)
async def test_stream_errors(grpc_server, text, kind, match):
    texts = [*TEXTS[:7], text, *TEXTS[7:]]
    settings = settings_of(grpc_server, timeout_s=0.3 if text == "hang" else 10)
    with LazuliClient(grpc_server.url, **settings) as client:
        with pytest.raises(kind, match=match):
            list(client.embed_iter(texts))
        assert len(list(client.embed_iter(TEXTS))) == 11
    async with AsyncLazuliClient(grpc_server.url, **settings) as client:
        with pytest.raises(kind, match=match):
            [part async for part in client.embed_iter(texts)]
        assert len([part async for part in client.embed_iter(TEXTS)]) == 11


def test_a_stream_that_is_left_early_ends_its_thread(grpc_server):
    before = set(threading.enumerate())
    with LazuliClient(grpc_server.url, **settings_of(grpc_server)) as client:
        parts = client.embed_iter(TEXTS)
        next(parts)
        (reader,) = [thread for thread in set(threading.enumerate()) - before if thread.name == "lazuli-stream"]
        parts.close()
        assert not reader.is_alive()


def test_closing_a_stream_ends_the_requests_that_grpcs_thread_waits_for():
    given = []

    class Call:
        cancelled = False

        def __iter__(self):
            return iter(())

        def cancel(self):
            self.cancelled = True

    call = Call()
    stream = GrpcStream(SimpleNamespace(ModelStreamInfer=lambda requests: given.append(requests) or call))
    stream.close()
    assert call.cancelled
    assert list(given[0]) == []


async def test_an_asynchronous_stream_is_left_early(grpc_server):
    async with AsyncLazuliClient(grpc_server.url, **settings_of(grpc_server)) as client:
        parts = client.embed_iter(TEXTS)
        await anext(parts)
        await parts.aclose()
        assert len(await client.embed(TEXTS)) == 11
