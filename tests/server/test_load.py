"""A query beside bulk in the same engine, on a live server. Asserted is the order of work, not its time."""

import queue
import statistics
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from lazuli_client import LazuliClient

from .conftest import assert_same_vectors
from .wire import DOORS, HttpError, grpc_infer, post, stream_parts, text_input

BULK_ROWS = 500


class Bulk:
    """A large request to the streaming model, which tells how many of its rows have come."""

    def __init__(self, server, texts, **options):
        self._answers = queue.Queue()
        self._client = triton_grpc.InferenceServerClient(server.grpc)
        self._client.start_stream(lambda result, error: self._answers.put((result, error)))
        inputs = [text_input(triton_grpc, texts)]
        self._client.async_stream_infer(
            "embed_stream", inputs, parameters=options or None, enable_empty_final_response=True
        )
        self.vectors = np.zeros((len(texts), 384), dtype=np.float32)
        self.rows = 0
        self.seen = np.zeros(len(texts), dtype=int)
        self.begun, self.ended = threading.Event(), threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            result, self.error = self._answers.get()
            if self.error is None:
                vectors = result.as_numpy("embedding")
                if vectors is not None:
                    index = result.as_numpy("index")[:, 0]
                    self.vectors[index] = vectors
                    self.seen[index] += 1
                    self.rows += len(index)
                    self.begun.set()
                if not result.get_response().parameters["triton_final_response"].bool_param:
                    continue
            self.begun.set()
            self.ended.set()
            return

    def finish(self):
        assert self.ended.wait(120)
        self._client.stop_stream()
        self._client.close()
        assert self.error is None
        assert (self.seen == 1).all()


def passages(reference, count):
    """Texts with their reference vectors, the longer half, over and over."""
    texts, expected = reference
    long = sorted(range(len(texts)), key=lambda row: -len(texts[row]))[: len(texts) // 2]
    rows = [long[number % len(long)] for number in range(count)]
    return [texts[row] for row in rows], expected[rows]


def query(server):
    (parts,) = stream_parts(server, [(["what is lazuli?"], {})])
    return parts[0].as_numpy("embedding")


def test_a_query_is_answered_while_most_of_a_large_request_waits(server, reference):
    texts, expected = passages(reference, BULK_ROWS)
    alone = query(server)
    bulk = Bulk(server, texts)
    assert bulk.begun.wait(60)
    done = []
    for _ in range(4):
        beside = query(server)
        np.testing.assert_allclose(beside, alone, atol=1e-5)
        done.append(bulk.rows)
    assert not bulk.ended.is_set(), "not even the last query came before the end of what began earlier"
    assert done[-1] < BULK_ROWS / 2
    bulk.finish()
    assert_same_vectors(bulk.vectors, expected)


def test_a_client_of_ten_thousand_texts_and_one_of_single_queries(server, reference):
    """Both go on: each query is answered long before the end of the bulk, and between two of them bulk is, too."""
    alone = query(server)
    texts, expected = reference
    rows = np.arange(10_000) % len(texts)
    done = 0
    with LazuliClient(server.grpc, workload="bulk") as client:
        parts = client.embed_iter(texts[row] for row in rows)
        for _ in range(6):
            part = next(parts)
            assert_same_vectors(part.embeddings, expected[rows[part.indices]])
            done += len(part.indices)
            np.testing.assert_allclose(query(server), alone, atol=1e-5)
        parts.close()
    assert done < len(rows) / 4


def test_bulk_that_came_later_shares_with_what_came_earlier(server, reference):
    texts, expected = passages(reference, BULK_ROWS)
    first = Bulk(server, texts)
    assert first.begun.wait(60)
    second = Bulk(server, texts[:60])
    second.finish()
    assert not first.ended.is_set(), "first come, first served"
    first.finish()
    assert_same_vectors(first.vectors, expected)
    assert_same_vectors(second.vectors, expected[:60])


def test_what_says_that_it_is_bulk_gives_way(server, reference):
    """A short text that says so waits for its turn with the others; it is answered all the same."""
    (parts,) = stream_parts(server, [(["not urgent"], {"workload": "bulk"})])
    assert parts[0].as_numpy("embedding").shape == (1, 384)
    with pytest.raises(InferenceServerException, match='workload: must be one of query, bulk, got "later"'):
        grpc_infer(server, ["x"], workload="later")


def test_queries_beside_bulk_are_answered_before_it_ends(server, reference):
    """However slow the machine is: first come, first served would take as long as all of the bulk."""
    texts, _ = passages(reference, BULK_ROWS)
    query(server)
    alone = statistics.median(timed(query, server) for _ in range(9))
    bulk = [Bulk(server, texts) for _ in range(2)]
    assert all(one.begun.wait(60) for one in bulk)
    beside = []
    while len(beside) < 9 and not any(one.ended.is_set() for one in bulk):
        beside.append(timed(query, server))
    for one in bulk:
        one.finish()
    print(f"p50 alone {1000 * alone:.1f} ms, beside bulk {1000 * statistics.median(beside):.1f} ms of {len(beside)}")
    assert len(beside) == 9, "nine queries took as long as a large request"


def timed(call, *arguments):
    started = time.monotonic()
    call(*arguments)
    return time.monotonic() - started


@pytest.mark.parametrize("door", [name for name in DOORS if "stream" in name])
def test_a_deadline_that_passes_is_an_error_and_the_rest_is_not_computed(server, reference, door):
    texts, expected = passages(reference, BULK_ROWS)
    bulk = Bulk(server, texts)
    assert bulk.begun.wait(60)
    with pytest.raises((InferenceServerException, HttpError), match="timed out: the deadline of 1 ms was over"):
        DOORS[door](server, texts[:200], deadline_ms=1)
    assert not bulk.ended.is_set()
    bulk.finish()
    assert_same_vectors(bulk.vectors, expected)


def test_the_code_of_a_deadline(server, reference):
    texts, expected = passages(reference, 400)
    with pytest.raises(InferenceServerException, match="timed out: the deadline of 1 ms") as caught:
        grpc_infer(server, texts, deadline_ms=1)
    assert caught.value.status() == "StatusCode.CANCELLED"
    inputs = [{"name": "text", "shape": [400, 1], "datatype": "BYTES", "data": texts}]
    with pytest.raises(HttpError) as http_error:
        post(server, "/v2/models/embed/infer", {"inputs": inputs, "parameters": {"deadline_ms": 1}})
    assert http_error.value.status in (400, 499)  # Triton 24.10 knows no other code for it
    assert_same_vectors(grpc_infer(server, texts[:20], deadline_ms=60_000)[0], expected[:20])
