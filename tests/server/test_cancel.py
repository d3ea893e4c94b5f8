"""Clients that give up what they asked for: what was not begun is not computed, and nobody else notices.

Triton 24.10 tells a model about it for gRPC calls of that model. What is cancelled at an ensemble is computed to its
end, and so is what a client of HTTP leaves behind.
"""

import asyncio
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.grpc import service_pb2_grpc

from lazuli.launch.options import ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import AsyncLazuliClient, DeadlineError, LazuliClient, codec
from lazuli_client.request import token_request

from .conftest import assert_same_vectors
from .supervised import wait_for
from .test_metrics import changes, published_since
from .wire import grpc_infer, grpc_stream, stream_parts, text_input

LONGEST = 512
# Seconds of work on any machine, and an answer that comes well before its end.
MANY, FEW = 1024, 6
LONG_TEXT = "word " * 250
EXIT_TIMEOUT_S = 15
# Until something is given up: on a slow machine it may not have reached the engine after the first.
PAUSES_S = (0.2, 1.0, 4.0)
# What a request is called in the metrics that was given up.
CANCELLED = "cancelled"


@pytest.fixture(scope="module")
def served():
    """A server of its own, as it is stopped at the end to see whether anything was left behind."""
    with running_server(ServeOptions(exit_timeout_s=EXIT_TIMEOUT_S)) as running:
        yield running


@pytest.fixture
def stub(served):
    with grpc.insecure_channel(served.grpc) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def long_rows(model, count):
    """A request of so many rows of the longest kind."""
    rows = [np.full(LONGEST, 2000 + number % 7, np.int32) for number in range(count)]
    return codec.to_grpc(token_request(model, rows, {}, range(count)))


class Unary:
    """A call that can be given up."""

    def __init__(self, stub, message, timeout_s=None):
        self._call = stub.ModelInfer.future(message, timeout=timeout_s)

    def cancel(self):
        self._call.cancel()

    def vectors(self):
        return codec.from_grpc(self._call.result(timeout=120))["embedding"]


class Streamed:
    """The same over a stream of its own."""

    def __init__(self, stub, message):
        self._end = threading.Event()
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        self._call = stub.ModelStreamInfer(self._requests(message))

    def _requests(self, message):
        yield message
        self._end.wait(120)

    def cancel(self):
        self._call.cancel()
        self._end.set()

    def vectors(self):
        rows = {}
        for response in self._call:
            assert not response.error_message
            outputs = codec.from_grpc(response.infer_response)
            if outputs:
                rows |= dict(zip(outputs["index"][:, 0].tolist(), outputs["embedding"], strict=True))
            if response.infer_response.parameters["triton_final_response"].bool_param:
                break
        self._end.set()
        return np.stack([rows[row] for row in range(len(rows))])


KINDS = [pytest.param("embedding", Unary, id="unary"), pytest.param("embedding_stream", Streamed, id="stream")]


def figures(served):
    return published_since(served, time.time())


def until(served, before, wanted, what):
    """The changes of the figures, once they are as wanted."""
    found = {}

    def look():
        found.clear()
        found.update(changes(before, figures(served)))
        return wanted(found)

    wait_for(look, f"{what}: {found}")
    return found


def soon(served, before, ended):
    """The changes of the figures, with this one, or after some seconds without: then it never reached the engine."""
    end = time.monotonic() + 3
    while ended not in (changed := changes(before, figures(served))) and time.monotonic() < end:
        pass  # `figures` waits for new ones
    return changed


@pytest.mark.parametrize(("model", "call"), KINDS)
def test_what_is_given_up_is_not_computed(served, stub, model, call):
    alone = call(stub, long_rows(model, FEW)).vectors()
    ended = ("lazuli_requests_total", model, CANCELLED)
    for pause_s in PAUSES_S:
        before = figures(served)
        first, given_up = call(stub, long_rows(model, FEW)), call(stub, long_rows(model, MANY))
        time.sleep(pause_s)
        given_up.cancel()
        np.testing.assert_allclose(first.vectors(), alone, atol=1e-5)
        if ended in (changed := soon(served, before, ended)):
            break
    assert changed[ended] == 1
    assert changed["lazuli_texts_total", model, CANCELLED] == MANY
    assert changed["lazuli_tokens_total", model, CANCELLED] == MANY * LONGEST
    assert changed["lazuli_tokens_total", model, "ok"] == FEW * LONGEST
    later = call(stub, long_rows(model, FEW)).vectors()  # behind whatever of it waited
    np.testing.assert_allclose(later, alone, atol=1e-5)
    changed = until(served, before, lambda found: found["lazuli_requests_total", model, "ok"] == 2, "the other to end")
    assert figures(served)["lazuli_queue_tokens", model] == 0
    computed = changed["lazuli_batch_tokens_sum", model]
    assert 2 * FEW * LONGEST <= computed < (2 * FEW + MANY / 2) * LONGEST


def test_a_deadline_of_the_call_gives_it_up_too(served, stub):
    """So does the client library's timeout, for token ids; for texts there is its `deadline_ms`."""
    before = figures(served)
    ended = ("lazuli_requests_total", "embedding", CANCELLED)
    for timeout_s in PAUSES_S:
        with pytest.raises(grpc.RpcError) as caught:
            Unary(stub, long_rows("embedding", MANY), timeout_s=timeout_s).vectors()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if ended in (changed := soon(served, before, ended)):
            break
    assert ended in changed
    assert changed.get(("lazuli_batch_tokens_sum", "embedding"), 0) < MANY * LONGEST / 2


def test_a_task_of_the_client_that_is_cancelled_gives_it_up_too(served):
    async def run():
        async with AsyncLazuliClient(served.grpc, rows_per_request=MANY, chars_per_request=10**9) as client:
            for pause_s in PAUSES_S:
                task = asyncio.create_task(client.embed_tokens([np.full(LONGEST, 2003, np.int32)] * MANY))
                await asyncio.sleep(pause_s)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            return await client.embed_tokens([[2003, 2004]])

    before = figures(served)
    assert asyncio.run(run()).token_counts.tolist() == [2]
    ended = ("lazuli_requests_total", "embedding", CANCELLED)
    changed = until(served, before, lambda found: ended in found, "a request to end")
    assert changed.get(("lazuli_batch_tokens_sum", "embedding"), 0) < len(PAUSES_S) * MANY * LONGEST / 2


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_clients_timeout_reaches_the_engine(served, protocol):
    """Whatever comes first, the server's word or the client's own clock: the work ends."""
    before = figures(served)
    address = served.grpc if protocol == "grpc" else served.http
    settings = {"protocol": protocol, "rows_per_request": MANY, "chars_per_request": 10**9}
    with LazuliClient(address, timeout_s=1.0, **settings) as client, pytest.raises(DeadlineError):
        client.embed([LONG_TEXT] * MANY)
    ended = ("lazuli_requests_total", "embedding", "DeadlineExceededError")
    if protocol == "http":  # over gRPC, Triton may hear of it before the engine has the request
        assert until(served, before, lambda found: ended in found, "the request to end")[ended] == 1
    changed = until(served, before, lambda found: not sum(waiting(served).values()), "the queues to be empty")
    assert changed.get(("lazuli_batch_sequences_sum", "embedding"), 0) < MANY


@pytest.mark.parametrize("model", ["embedding", "embed"])
def test_tritons_own_timeout_does_the_same(served, model):
    """In microseconds, as `tritonclient` sends it; it reaches the steps of an ensemble."""
    client = triton_grpc.InferenceServerClient(served.grpc)
    if model == "embedding":
        ids, mask = np.full((MANY, LONGEST), 2003, np.int32), np.ones((MANY, LONGEST), np.int8)
        inputs = [triton_grpc.InferInput("input_ids", ids.shape, "INT32").set_data_from_numpy(ids)]
        inputs += [triton_grpc.InferInput("attention_mask", mask.shape, "INT8").set_data_from_numpy(mask)]
    else:
        inputs = [text_input(triton_grpc, [LONG_TEXT] * MANY)]
    with client, pytest.raises(triton_grpc.InferenceServerException, match="timed out: the deadline of 50 ms was over"):
        client.infer(model, inputs, timeout=50_000)


def test_through_an_ensemble_nobody_else_notices(served, reference):
    """It is computed to its end there; a `deadline_ms` would not let it.

    In the middle of a stream is worse: through an ensemble, Triton 24.10 then keeps the request until it stops.
    """
    texts, expected = reference
    with triton_grpc.InferenceServerClient(served.grpc) as client:
        inputs = [text_input(triton_grpc, texts[:60])]
        for _ in range(3):
            client.async_infer("embed", inputs, lambda result, error: None).cancel()
            given_up = client.async_infer("embed", inputs, lambda result, error: None)
            time.sleep(0.05)
            given_up.cancel()
        vectors, _ = grpc_infer(served, texts[:40])
        streamed, _ = grpc_stream(served, texts[:40])
    assert_same_vectors(vectors, expected[:40])
    assert_same_vectors(streamed, expected[:40])
    wait_for(lambda: not sum(waiting(served).values()), "the queues to be empty")


def waiting(served):
    return {key: value for key, value in figures(served).items() if key[0] == "lazuli_queue_tokens"}


@pytest.mark.parametrize(("model", "call"), KINDS)
def test_many_that_are_given_up_at_any_moment(served, model, call, reference):
    """Before they are begun, in the middle, and after the answer: each ends once, and all others are answered."""
    texts, expected = reference
    before = figures(served)
    count, clients = 30, 6

    def client(number):
        rng = random.Random(number)
        with grpc.insecure_channel(served.grpc) as channel:
            own = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for _ in range(count):
                asked = call(own, long_rows(model, rng.choice([1, 4])))
                time.sleep(rng.choice([0, 0.002, 0.05]))
                asked.cancel()

    def other():
        while not done.is_set():
            assert_same_vectors(grpc_infer(served, texts[:8])[0], expected[:8])
            (parts,) = stream_parts(served, [(texts[:8], {})])
            assert_same_vectors(np.concatenate([part.as_numpy("embedding") for part in parts]), expected[:8])

    done = threading.Event()
    with ThreadPoolExecutor(clients + 1) as threads:
        beside = threads.submit(other)
        for future in [threads.submit(client, number) for number in range(clients)]:
            future.result(timeout=120)
        done.set()
        beside.result(timeout=120)
    wait_for(lambda: not sum(waiting(served).values()), "the queues to be empty")
    changed = changes(before, figures(served))
    outcomes = {key[2]: value for key, value in changed.items() if key[:2] == ("lazuli_requests_total", model)}
    assert set(outcomes) <= {"ok", CANCELLED}
    assert outcomes[CANCELLED] >= 1


def test_it_stops_in_good_order_after_all_that(served):
    """The last test here: no request was left behind to be waited for."""
    assert served.process.stop(2 * EXIT_TIMEOUT_S), "it had to be killed, or crashed"
    assert served.process.exit_code() == 0
    in_flight = re.findall(r"Found (\d+) model versions that have in-flight", served.log_path.read_text())
    assert in_flight[-1] == "0"
